"""What every simulated run shares: the failure it raises, and how product code is wrapped and
silenced while it runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any


class InvariantViolated(AssertionError):
    """A rule of docs/INVARIANTS.md does not hold. The text says which rule, and how to repeat the
    run."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the nodes' log. Thousands of crashes would print millions of warnings."""
    logger = logging.getLogger("penstock")
    before = logger.disabled, logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.disabled, logger.level = before


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of product code by `make(original)` until the block ends.

    Observers and planted bugs use this. An attribute of a class is replaced in the class that
    defines it, which may be a base class.
    """
    definer = (
        next((base for base in owner.__mro__ if name in vars(base)), owner)
        if isinstance(owner, type)
        else owner
    )
    original = vars(definer)[name]
    setattr(definer, name, make(original))
    try:
        yield
    finally:
        setattr(definer, name, original)
