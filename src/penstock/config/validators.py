"""Validators of setting values. Their error messages are Kafka's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Validator(Protocol):
    """`text` describes the valid values as Kafka's documentation does."""

    @property
    def text(self) -> str: ...

    def refusal(self, name: str, value: Any, /) -> str | None:
        """Return the reason why the value is invalid; None if it is valid."""


class Between(NamedTuple):
    """A number of at least `least` and, unless `most` is None, at most `most`."""

    least: float
    most: float | None = None

    @property
    def text(self) -> str:
        return f"[{self.least},...]" if self.most is None else f"[{self.least},...,{self.most}]"

    def refusal(self, _name: str, value: float | None, /) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < self.least:
            return f"Value must be at least {self.least}"
        if self.most is not None and value > self.most:
            return f"Value must be no more than {self.most}"
        return None


class BetweenOr(NamedTuple):
    """A number in a range, or one special value outside it (-1 for the default level of gzip)."""

    least: int
    most: int
    other: int

    @property
    def text(self) -> str:
        return f"[{self.least},...,{self.most}] or {self.other}"

    def refusal(self, _name: str, value: int, /) -> str | None:
        if value == self.other or self.least <= value <= self.most:
            return None
        return f"Value must be between {self.least} and {self.most} or equal to {self.other}"


class OneOf(NamedTuple):
    """One of several strings."""

    choices: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"[{', '.join(self.choices)}]"

    def refusal(self, _name: str, value: str | None, /) -> str | None:
        return (
            None if value in self.choices else f"String must be one of: {', '.join(self.choices)}"
        )


class IgnoringCase(NamedTuple):
    """One of several strings, in any case."""

    choices: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"(case insensitive) [{', '.join(self.choices)}]"

    def refusal(self, _name: str, value: str | None, /) -> str | None:
        known = value is not None and value.upper() in self.choices
        return (
            None
            if known
            else f"String must be one of (case insensitive): {', '.join(self.choices)}"
        )


class ListOf(NamedTuple):
    """A list without duplicates or empty elements; with `choices`, only of these."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True
    text: str = ""

    def refusal(self, name: str, value: Sequence[str] | None, /) -> str | None:
        if value is None:
            return None
        if not value and not self.may_be_empty:
            return (
                f"Configuration '{name}' must not be empty. Valid values include: "
                f"{', '.join(self.choices) or 'any non-empty value'}"
            )
        if "" in value:
            return f"Configuration '{name}' values must not be empty."
        if len(set(value)) != len(value):
            return f"Configuration '{name}' values must not be duplicated."
        if self.choices and not set(value) <= set(self.choices):
            return f"String must be one of: {', '.join(self.choices)}"
        return None


class ThrottledReplicas(NamedTuple):
    """All replicas (*), or a list of partition:broker."""

    text: str = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def refusal(self, name: str, value: Sequence[str] | None, /) -> str | None:
        if value is None or "".join(value).strip() == "*":
            return None
        if all(re.fullmatch(r"([0-9]+:[0-9]+)?", replica.strip()) for replica in value):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            f"{self.text}"
        )


def at_least(least: float) -> Between:
    return Between(least)


def between(least: float, most: float) -> Between:
    return Between(least, most)


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


def list_of(*choices: str, may_be_empty: bool = True) -> ListOf:
    return ListOf(choices, may_be_empty, f"[{', '.join(choices)}]" if choices else "")
