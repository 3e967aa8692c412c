"""What aiokafka takes from elsewhere than the simulation: the order of brokers, and timestamps.

aiokafka chooses a random broker of a set. The brokers are tuples, and have None for a rack. The
hash of None is an address before Python 3.12, so that the order of the set differs between
processes. Its compiled code reads the time of a record from the C library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")
# An owner, the name of its attribute, and the new value.
Change = tuple[Any, str, Any]


class SortedSet(set[T]):
    """A set whose iteration does not depend on hashes."""

    def __iter__(self) -> Iterator[T]:
        return iter(sorted(super().__iter__(), key=repr))


def changes(is_simulated: Callable[[], bool]) -> list[Change]:
    """Return what is to be changed for a run; nothing if aiokafka is not installed."""
    if find_spec("aiokafka") is None:
        return []
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.producer.message_accumulator import BatchBuilder

    original_brokers: Callable[[Any], set[Any]] = ClusterMetadata.brokers
    original_append: Callable[..., Any] = BatchBuilder.append

    def brokers(metadata: Any) -> set[Any]:
        found = original_brokers(metadata)
        return SortedSet(found) if is_simulated() else found

    def append(builder: Any, *, timestamp: int | None, **fields: Any) -> Any:
        if timestamp is None and is_simulated():
            timestamp = int(time.time() * 1000)
        return original_append(builder, timestamp=timestamp, **fields)

    return [(ClusterMetadata, "brokers", brokers), (BatchBuilder, "append", append)]
