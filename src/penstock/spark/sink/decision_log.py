"""Reads and writes the decisions of sinks in a compacted topic, with a sink's name as the key.

All decisions of a sink are in one partition, written by transactions of `<sink>/driver`. A reader
that has fenced the driver takes the partition's end offset and reads until the last stable offset
has reached it: then it knows every decision that was ever committed. That waits at most for the
open transactions of other sinks of the partition, which time out.

A process remembers how far it has read. Knows nothing of what a decision means.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import BEGINNING, StartOffset
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import LATEST, IsolationLevel
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.client.producer.partitioner import partition_of_key
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicId, TopicPartition
from penstock.records.build import build_batch
from penstock.spark.options import SinkOptions
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.sink.decision import Decision, SinkError, from_json, to_json
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.transactions import driver_id

# Sinks are divided among them, so that they wait less for each other. The number never changes.
PARTITIONS = 16
_CONFIGS = {
    "cleanup.policy": "compact",
    # A process that starts reads the whole partition, and the last segment is not compacted.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
_MAX_WAIT_S = 0.1


class _Read:
    """A sink's partition as far as this process has read it."""

    def __init__(self) -> None:
        self.position: StartOffset = BEGINNING
        self.decision: Decision | None = None


# A topic that was deleted and created again has another id.
_read: dict[tuple[Cluster, TopicId, str], _Read] = {}
_MAX_REMEMBERED = 1024


class DecisionLog:
    def __init__(self, client: Client, sink: str, patience_s: float) -> None:
        self._client = client
        self._sink = sink
        self._patience_s = patience_s
        self.partition = TopicPartition(DECISION_TOPIC, partition_of_key(sink.encode(), PARTITIONS))

    async def open(self) -> None:
        """Create the topic if it does not exist. SinkError if it is not as expected."""
        info = await self._topic()
        if len(info.partitions) < PARTITIONS:
            raise SinkError(
                f"topic {DECISION_TOPIC} has {len(info.partitions)} partitions instead of "
                f"{PARTITIONS}, so it was not created by a sink: delete it while no query runs"
            )

    async def read(self) -> Decision | None:
        """Return the last committed decision. The caller has fenced the driver."""
        topic = await self._topic()
        if len(_read) >= _MAX_REMEMBERED:
            _read.clear()
        state = _read.setdefault((self._client.cluster, topic.id, self._sink), _Read())
        ends = await self._client.admin.list_offsets({self.partition: LATEST})
        end = ends[self.partition].offset
        try:
            await self._read_up_to(end, state)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # Compaction does not delete the last records, but an administrator may have.
            state.position, state.decision = BEGINNING, None
            await self._read_up_to(end, state)
        return state.decision

    async def _read_up_to(self, end: int, state: _Read) -> None:
        if state.position == end:
            return
        now = self._client.cluster.world.clock.monotonic
        deadline = now() + self._patience_s
        async with self._client.consumer(
            isolation=IsolationLevel.READ_COMMITTED, max_wait_s=_MAX_WAIT_S
        ) as consumer:
            await consumer.assign({self.partition: state.position})
            while (position := consumer.positions[self.partition]) < end:
                if now() > deadline:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"the decisions of sink {self._sink} could not be read up to offset {end} "
                        f"of {self.partition} within {self._patience_s:g} s: a transaction of "
                        f"another sink is open there since offset {position}",
                    )
                for record in await consumer.poll():
                    if record.key == self._sink.encode():
                        state.decision = from_json(self._sink, record.value)
                state.position = consumer.positions[self.partition]

    async def write(
        self,
        options: SinkOptions,
        decision: Decision,
        producer: ProducerIdAndEpoch,
        rows: Iterable[tuple[TopicPartition, bytes]] = (),
    ) -> None:
        """Write a decision and record batches with rows to the driver's transaction. The producer
        has written nothing before."""
        now_ms = self._client.cluster.world.clock.now_ms()
        batch = build_batch(
            [(self._sink.encode(), to_json(decision), (), now_ms)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        sender = BatchSender(self._client, options, producer, driver_id(self._sink))
        try:
            await sender.send(self.partition, batch)
            await sender.send_all(rows)
            await sender.flush()
        finally:
            await sender.close()

    async def _topic(self) -> TopicInfo:
        cluster = self._client.cluster
        known = cluster.metadata.topics.get(DECISION_TOPIC)
        if known is not None:
            return known

        async def fetch() -> TopicInfo:
            return (await cluster.topics([DECISION_TOPIC]))[0]

        try:
            return await fetch()
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self._create()
        return await cluster.retry(fetch, self._patience_s)

    async def _create(self) -> None:
        try:
            await self._client.admin.create_topic(
                DECISION_TOPIC, partitions=PARTITIONS, configs=_CONFIGS
            )
        except KafkaError as error:
            # Another sink has created it at the same time.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
