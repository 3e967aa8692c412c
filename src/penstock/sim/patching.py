"""Attributes of product code replaced for a while: by observers that look on, and by bugs that are
planted on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """`make` gets what was there and gives what is there meanwhile; of a class, where it or a base
    of it has it."""
    home = (
        next((one for one in owner.__mro__ if name in vars(one)), owner)
        if isinstance(owner, type)
        else owner
    )
    before = vars(home)[name]
    setattr(home, name, make(before))
    try:
        yield
    finally:
        setattr(home, name, before)
