"""What the rest of this room needs of a set of values, and how it says that one of them cannot be
used."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from penstock.config.setting import Setting

T = TypeVar("T")


class Values(Protocol):
    """Typed values by setting: a `NodeConfig`, or the `Draft` that one is made from."""

    def __getitem__(self, setting: Setting[T], /) -> T: ...

    def is_set(self, setting: Setting[Any], /) -> bool:
        """Whether the value was given, and is not the default."""


class RefusedError(ValueError):
    """Values that are well-formed one by one but cannot be used. `setting` is where to look
    first."""

    def __init__(self, setting: Setting[Any], reason: str) -> None:
        super().__init__(reason)
        self.setting = setting
        self.reason = reason


class UnusableError(Exception):
    """A value was asked for that could not be parsed, or is missing. The problem has been noted
    already."""


def require(holds: bool, setting: Setting[Any], reason: str) -> None:
    if not holds:
        raise RefusedError(setting, reason)
