"""The topics of Metadata responses in encoded form, so that a topic is encoded once per version and
change, and not for each request.

Encoding takes some ten microseconds per partition, and the smallest request asks for all of them.
The cache has the bytes of a topic by version and authorized operations, as long as the topic's
image and the set of live brokers are the same. It also has the bytes of all topics together.

A response that takes longer is built in slices of METADATA_SLICE_S. The first slice is taken at
once, so that a small response waits for no other. The further slices of one response after the
other are taken in turns of the event loop. A response that waited for that starts over with the
metadata of the moment, and finds most topics in the cache.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

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
T = TypeVar("T")
# Builds something in slices, and returns the result.
Slices = Generator[None, None, T]


class Form(NamedTuple):
    """What the encoding of a topic depends on besides its image and the live brokers."""

    version: int
    operations: int


@dataclass(slots=True)
class _Cached:
    """The topics of one form."""

    topics: dict[str, tuple[TopicImage, bytes]] = field(default_factory=dict)
    # All topics of an image together.
    all: tuple[Mapping[str, TopicImage], EncodedArray] | None = None
    size: int = 0


class EncodedTopics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: frozenset[int] = frozenset()
        # The forms in the order of their last use.
        self._forms: OrderedDict[Form, _Cached] = OrderedDict()
        self._slicing = asyncio.Lock()

    async def build_later(self, build: Callable[[], Slices[T]]) -> T:
        """Build a response, a slice in each turn of the event loop, after those that wait."""
        async with self._slicing:
            slices = build()
            while (built := next_slice(slices)) is None:
                await asyncio.sleep(0)
            return built

    def renew(self, live: frozenset[int]) -> None:
        """Drop what was encoded for other live brokers than the current ones."""
        if self._live != live:
            self._forms.clear()
            self._live = live

    def all_topics(
        self, topics: Mapping[str, TopicImage], form: Form, live: frozenset[int]
    ) -> Slices[EncodedArray]:
        """Encode all topics of an image."""
        cached = self._cached(form, live)
        if cached.all is not None and cached.all[0] is topics:
            return cached.all[1]
        encoded = yield from self.some_topics(topics.values(), form, live)
        cached = self._cached(form, live)
        if cached.all is not None:
            cached.size -= len(cached.all[1].data)
        cached.all = topics, encoded
        cached.size += len(encoded.data)
        self._evict()
        return encoded

    def some_topics(
        self,
        topics: Iterable[TopicImage | Topic | None],
        form: Form,
        live: frozenset[int],
        operations: Callable[[str], int] | None = None,
    ) -> Slices[EncodedArray]:
        """Encode topics. A topic without an image has an error, and None is left out. `operations`
        returns the authorized operations of a topic, if they are not those of the form."""
        pieces: list[bytes] = []
        slice_end = self._clock.monotonic() + METADATA_SLICE_S
        for topic in topics:
            if isinstance(topic, Topic):
                pieces.append(encode_struct(MetadataResponse, topic, form.version))
            elif topic is not None:
                if operations is not None:
                    form = Form(form.version, operations(topic.name))
                known = self._cached(form, live).topics.get(topic.name)
                if known is not None and known[0] is topic:
                    pieces.append(known[1])
                else:
                    encoded = yield from self._encode(topic, form, live, slice_end)
                    self._put(topic, encoded, form, live)
                    pieces.append(encoded)
            if self._clock.monotonic() >= slice_end:
                yield
                slice_end = self._clock.monotonic() + METADATA_SLICE_S
        return EncodedArray(len(pieces), b"".join(pieces))

    def _encode(
        self, topic: TopicImage, form: Form, live: frozenset[int], slice_end: float
    ) -> Slices[bytes]:
        pieces: list[bytes] = []
        for number, (index, state) in enumerate(topic.partitions.items(), 1):
            pieces.append(_partition(index, state, form.version, live))
            if number % METADATA_SLICE_PARTITIONS == 0 and self._clock.monotonic() >= slice_end:
                yield
                slice_end = self._clock.monotonic() + METADATA_SLICE_S
        return _topic(topic, EncodedArray(len(pieces), b"".join(pieces)), form)

    # The cache

    def _cached(self, form: Form, live: frozenset[int]) -> _Cached:
        """Return the topics of a form. A response that was begun before the live brokers changed
        gets an empty cache of its own."""
        if live != self._live:
            return _Cached()
        cached = self._forms.get(form)
        if cached is None:
            cached = self._forms[form] = _Cached()
        self._forms.move_to_end(form)
        return cached

    def _put(self, topic: TopicImage, encoded: bytes, form: Form, live: frozenset[int]) -> None:
        cached = self._cached(form, live)
        known = cached.topics.get(topic.name)
        cached.topics[topic.name] = topic, encoded
        cached.size += len(encoded) - (0 if known is None else len(known[1]))
        self._evict()

    def _evict(self) -> None:
        """Drop the forms that were not used for the longest time while the cache is too large.
        Entries of deleted topics stay until then."""
        while sum(cached.size for cached in self._forms.values()) > MAX_CACHED_METADATA_BYTES:
            self._forms.popitem(last=False)


def next_slice(slices: Slices[T]) -> T | None:
    """Build one slice. Return the result, or None if it was not the last one."""
    try:
        next(slices)
    except StopIteration as end:
        built: T = end.value
        return built
    return None


def _partition(index: int, state: PartitionState, version: int, live: frozenset[int]) -> bytes:
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
