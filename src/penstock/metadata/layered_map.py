"""A large mapping whose next version does not copy it. PURE.

An image with 20,000 topics must not copy all of them because the ISR of one partition changed. A
`LayeredMap` is a large dict that is never changed, and a small one of what was added, replaced or
removed since. The next version copies the small one. When the small one has grown, both become one
dict, and the cost of that is spread over the changes before it.

Keys are iterated in the order in which they were added. The persistent maps of libraries order them
by their hashes, which differ from process to process for strings: a simulated cluster would not
repeat a run of the same seed.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from math import isqrt
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Copying a dict of this size takes a few microseconds.
_SMALL = 256
_ABSENT: Final[Any] = object()
_REMOVED: Final[Any] = object()


def next_version(mapping: Mapping[K, V]) -> MutableMapping[K, V]:
    """Return a copy that its only owner changes and then hands over to `settled`."""
    if isinstance(mapping, LayeredMap):
        return mapping.copy()
    if len(mapping) <= _SMALL or not isinstance(mapping, dict):
        return dict(mapping)
    return LayeredMap(mapping, {}, len(mapping))


def settled(mapping: MutableMapping[K, V]) -> Mapping[K, V]:
    """Return a mapping that is not changed any more, as one dict if it has many changes."""
    return mapping.settled() if isinstance(mapping, LayeredMap) else mapping


class LayeredMap(MutableMapping[K, V], Generic[K, V]):
    """Made by `next_version`. Equal to a dict of the same items."""

    __slots__ = ("_base", "_changes", "_count")

    def __init__(self, base: dict[K, V], changes: dict[K, V], count: int) -> None:
        self._base = base
        # A removed key of the base has the value _REMOVED.
        self._changes = changes
        self._count = count

    def copy(self) -> LayeredMap[K, V]:
        return LayeredMap(self._base, self._changes.copy(), self._count)

    def settled(self) -> Mapping[K, V]:
        # With as many changes as the square root of the size, copying the changes each time and
        # copying everything once take equally long.
        if len(self._changes) <= max(_SMALL, isqrt(len(self._base))):
            return self
        merged = self._base.copy()
        for key, value in self._changes.items():
            if value is _REMOVED:
                del merged[key]
            else:
                merged[key] = value
        return merged

    # Reading

    def get(self, key: K, default: Any = None) -> Any:
        found = self._changes.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base.get(key, default)
        return default if found is _REMOVED else found

    def __getitem__(self, key: K) -> V:
        found: V = self._changes.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base[key]
        if found is _REMOVED:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return self._changes[key] is not _REMOVED
        return key in self._base

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for key, _value in self.pairs():
            yield key

    def pairs(self) -> Iterator[tuple[K, V]]:
        base, changes = self._base, self._changes
        for key, value in base.items():
            changed = changes.get(key, _ABSENT)
            if changed is _ABSENT:
                yield key, value
            elif changed is not _REMOVED:
                yield key, changed
        for key, value in changes.items():
            if key not in base:
                yield key, value

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __repr__(self) -> str:
        return f"LayeredMap({dict(self.pairs())!r})"

    # Changing

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            self._count += 1
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._count -= 1
        if key in self._base:
            self._changes[key] = _REMOVED
        else:
            del self._changes[key]


class _Items(ItemsView[K, V]):
    _mapping: LayeredMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: LayeredMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        for _key, value in self._mapping.pairs():
            yield value
