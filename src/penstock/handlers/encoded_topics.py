"""The topics of Metadata responses in encoded form, so that a topic is encoded once per version and
change, and not for each request.

Encoding takes some ten microseconds per partition, and the smallest request asks for all of them.
The cache has the bytes of a topic by version and authorized operations, as long as the topic's
image and the set of live brokers are the same. It also has the bytes of all topics together.

What is not cached is encoded in slices of METADATA_SLICE_S. Other connections have their turn
between two slices, and one request at a time is encoded that way. The next one starts over, and
finds most topics in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import NamedTuple, Protocol

from penstock.handlers.topic_view import INTERNAL_TOPICS, offline_replicas, partition_error
from penstock.limits import (
    MAX_CACHED_METADATA_BYTES,
    METADATA_SLICE_PARTITIONS,
    METADATA_SLICE_S,
)
from penstock.metadata.image import PartitionState, TopicImage
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.schema import EncodedArray
from penstock.world import Clock

Topic = MetadataResponse.Topic
# Encodes topics in slices, and returns the result.
Slices = Generator[None, None, EncodedArray]


class Encode(Protocol):
    """`all_topics` or `some_topics` with their other arguments."""

    def __call__(self, *, only_cached: bool) -> Slices: ...


class Form(NamedTuple):
    """What the encoding of a topic depends on besides its image and the live brokers."""

    version: int
    operations: int


class EncodedTopics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: frozenset[int] = frozenset()
        self._topics: dict[tuple[Form, str], tuple[TopicImage, bytes]] = {}
        self._all: dict[Form, tuple[Mapping[str, TopicImage], EncodedArray]] = {}
        self._bytes = 0
        self._slicing = asyncio.Lock()

    def encode_now(self, encode: Encode) -> EncodedArray | None:
        """Return the encoded topics, or None if one slice is not enough."""
        return _next_slice(encode(only_cached=self._slicing.locked()))

    async def encode_later(self, encode: Encode) -> EncodedArray:
        """Encode topics, a slice in each turn of the event loop."""
        async with self._slicing:
            slices = encode(only_cached=False)
            while (encoded := _next_slice(slices)) is None:
                await asyncio.sleep(0)
            return encoded

    def all_topics(
        self,
        topics: Mapping[str, TopicImage],
        form: Form,
        live: Collection[int],
        *,
        only_cached: bool,
    ) -> Slices:
        """Encode all topics of an image."""
        self._keep(live)
        known = self._all.get(form)
        if known is not None and known[0] is topics:
            return known[1]
        encoded = yield from self.some_topics(topics.values(), form, live, only_cached=only_cached)
        self._keep(live)
        self._all[form] = topics, encoded
        self._count(len(encoded.data))
        return encoded

    def some_topics(
        self,
        topics: Iterable[TopicImage | Topic],
        form: Form,
        live: Collection[int],
        *,
        only_cached: bool,
    ) -> Slices:
        """Encode topics. A topic without an image has an error. With `only_cached`, end the slice
        before a topic that is not cached."""
        pieces: list[bytes] = []
        slice_end = self._clock.monotonic() + METADATA_SLICE_S
        for topic in topics:
            if isinstance(topic, Topic):
                pieces.append(encode_struct(MetadataResponse, topic, form.version))
                continue
            self._keep(live)
            known = self._topics.get((form, topic.name))
            if known is not None and known[0] is topic:
                pieces.append(known[1])
            else:
                if only_cached:
                    yield
                encoded = yield from self._encode(topic, form, live, slice_end)
                self._keep(live)
                self._topics[form, topic.name] = topic, encoded
                self._count(len(encoded))
                pieces.append(encoded)
            if self._clock.monotonic() >= slice_end:
                yield
                slice_end = self._clock.monotonic() + METADATA_SLICE_S
        return EncodedArray(len(pieces), b"".join(pieces))

    def _encode(
        self, topic: TopicImage, form: Form, live: Collection[int], slice_end: float
    ) -> Generator[None, None, bytes]:
        pieces: list[bytes] = []
        for number, (index, state) in enumerate(topic.partitions.items(), 1):
            pieces.append(_partition(index, state, form.version, live))
            if number % METADATA_SLICE_PARTITIONS == 0 and self._clock.monotonic() >= slice_end:
                yield
                slice_end = self._clock.monotonic() + METADATA_SLICE_S
        return _topic(topic, EncodedArray(len(pieces), b"".join(pieces)), form)

    def _keep(self, live: Collection[int]) -> None:
        """Keep the cache if it is for these live brokers, else clear it."""
        if self._live != live:
            self._clear()
            self._live = frozenset(live)

    def _count(self, size: int) -> None:
        """Clear the cache when it is full. Entries of deleted topics are in it until then."""
        self._bytes += size
        if self._bytes > MAX_CACHED_METADATA_BYTES:
            self._clear()

    def _clear(self) -> None:
        self._topics.clear()
        self._all.clear()
        self._bytes = 0


def _next_slice(slices: Slices) -> EncodedArray | None:
    try:
        next(slices)
    except StopIteration as end:
        encoded: EncodedArray = end.value
        return encoded
    return None


def _partition(index: int, state: PartitionState, version: int, live: Collection[int]) -> bytes:
    partition = Topic.Partition(
        error_code=partition_error(state, live),
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=offline_replicas(state, live),
    )
    return encode_struct(MetadataResponse, partition, version)


def _topic(topic: TopicImage, partitions: EncodedArray, form: Form) -> bytes:
    encoded = Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,  # type: ignore[arg-type]  # see may_be_encoded
        topic_authorized_operations=form.operations,
    )
    return encode_struct(MetadataResponse, encoded, form.version)
