"""The interface through which the tests use each real client. Knows no client."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import uuid4

CODECS = ("gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60.0
# More than the tests' 1-MB records with their overhead.
MAX_REQUEST_BYTES = 1_048_588

Headers = tuple[tuple[str, bytes], ...]


class Sent(NamedTuple):
    """A record to produce. Without a timestamp the client sets its own."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Got(NamedTuple):
    """A consumed record."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Abilities:
    """What a client supports in this environment."""

    codecs: tuple[str, ...] = CODECS
    idempotence: bool = True
    timestamps: bool = True
    admin: bool = True
    note: str = ""


class ClientUnderTest(Protocol):
    """An unmodified client. Consumers are assigned partitions, without a group."""

    @property
    def abilities(self) -> Abilities: ...

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; raises if the broker refuses."""

    def topics(self) -> dict[str, int]:
        """Return every topic and its number of partitions."""

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """Return the acknowledged offsets with acks=all, or nothing if the client does not report
        them."""

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        """Return `count` records from the beginning of all partitions."""

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        """Return `count` records after a seek from another position of the partition."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with this timestamp or a later one, or None."""


def new_topic(prefix: str) -> str:
    return f"{prefix}-{uuid4().hex[:8]}"


def compressible(size: int, seed: int) -> bytes:
    """Return bytes that every codec compresses, but not to almost nothing."""
    words = [random.Random(seed).randbytes(4).hex().encode() for _ in range(64)]
    rng = random.Random(-1 - seed)
    return b"".join(rng.choice(words) for _ in range(size // 8 + 1))[:size]


def in_order(records: list[Got]) -> list[Got]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def fields(records: list[Got]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [(record.key, record.value, record.headers) for record in records]
