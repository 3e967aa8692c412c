"""Subscriptions by regular expression, in RE2's syntax and with its guarantee of linear time
(KIP-848 asks for both). PURE.

Python's own engine backtracks: one client's expression could block a node for good. As in Kafka an
expression must match a topic's whole name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_REGEX_CHARACTERS, MAX_REGEX_PROGRAM, MAX_REGEX_STEPS


class Expression(NamedTuple):
    """`size` is that of RE2's program: matching takes at most so many steps for each character."""

    matches: Callable[[str], object]
    size: int


def matching(expression: str, names: Collection[str]) -> frozenset[str]:
    """Return the names that the expression matches as a whole. INVALID_REGULAR_EXPRESSION: it is
    malformed or too expensive."""
    matches = check_cost(expression, names).matches
    return frozenset(name for name in names if matches(name))


def check_cost(expression: str, names: Collection[str]) -> Expression:
    """Return the compiled expression, if matching all names does not block the event loop for
    long."""
    compiled_expression = compiled(expression)
    steps = compiled_expression.size * sum(map(len, names))
    if steps > MAX_REGEX_STEPS:
        raise _invalid(
            expression,
            f"matching all topics would take more than {MAX_REGEX_STEPS} steps; simplify the "
            "expression",
        )
    return compiled_expression


@lru_cache(maxsize=256)
def compiled(expression: str) -> Expression:
    if len(expression) > MAX_REGEX_CHARACTERS:
        raise _invalid(
            expression,
            f"it has {len(expression)} characters, and {MAX_REGEX_CHARACTERS} are allowed",
        )
    re2 = import_module("re2")  # by name: it has no types
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        pattern = re2.compile(expression, options)
    except re2.error as error:
        raise _invalid(expression, _reason(error)) from None
    if pattern.programsize > MAX_REGEX_PROGRAM:
        raise _invalid(
            expression,
            f"its program has {pattern.programsize} steps, and {MAX_REGEX_PROGRAM} are allowed",
        )
    return Expression(pattern.fullmatch, pattern.programsize)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _invalid(expression: str, reason: str) -> KafkaError:
    shown = expression if len(expression) <= 100 else expression[:100] + "…"
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
    )
