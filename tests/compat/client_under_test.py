"""What each real client is asked to do, in words that all of them understand. Knows no client."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import uuid4

CODECS = ("gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60.0
# More than the 1-MB records of the tests and what is around them.
MAX_REQUEST_BYTES = 1_048_588

Headers = tuple[tuple[str, bytes], ...]


class Sent(NamedTuple):
    """A record as it is given to a client. Without a timestamp the client sets its own."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Got(NamedTuple):
    """A record as a client gave it back."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Abilities:
    """What a client can do at all, and what it cannot in this environment."""

    codecs: tuple[str, ...] = CODECS
    idempotence: bool = True
    timestamps: bool = True
    admin: bool = True
    note: str = ""


class ClientUnderTest(Protocol):
    """A real client, unmodified. Consumers are assigned their partitions: no groups."""

    @property
    def abilities(self) -> Abilities: ...

    def create_topic(self, topic: str, partitions: int) -> None:
        """Raises when the broker refuses."""

    def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """The offsets at which the broker acknowledged the records, with acks=all; empty when the
        client does not tell."""

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        """`count` records from the beginning of all partitions."""

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        """`count` records after a seek to an offset of a partition that was being read
        elsewhere."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older than this; None when there is none."""


def new_topic(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"


def compressible(size: int, seed: int) -> bytes:
    """Bytes that shrink, but not to nothing: with every codec there is something to decode."""
    words = [random.Random(seed).randbytes(4).hex().encode() for _ in range(64)]
    rng = random.Random(-1 - seed)
    return b"".join(rng.choice(words) for _ in range(size // 8 + 1))[:size]


def in_order(records: list[Got]) -> list[Got]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def fields(records: list[Got]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [(record.key, record.value, record.headers) for record in records]
