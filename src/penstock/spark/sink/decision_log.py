"""Reads and writes the decisions of sinks in a compacted topic, with a sink's name as the key.

All decisions of a sink are in one partition, written by transactions of `<sink>/driver`. A reader
that has fenced the driver writes a record of its own, the barrier, and reads up to it: then it
knows every decision that was ever committed. Neither ListOffsets nor Fetch alone would do, since a
leader that was paused answers both from before its successor was elected. It cannot acknowledge a
write with acks=all, though. The key of the barrier is `<sink>/lease`, so compaction keeps one.

Reading waits at most for the open transactions of other sinks of the partition, which time out.

A process remembers how far it has read. Knows nothing of what a decision means.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import BEGINNING, StartOffset
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import IsolationLevel
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.client.producer.partitioner import partition_of_key
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicId, TopicPartition
from penstock.records.build import build_batch
from penstock.spark.options import SinkOptions
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.sink.decision import Decision, SinkError, from_json, to_json
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.transactions import DRIVER_TIMEOUT_MS, driver_id

logger = logging.getLogger(__name__)

# Sinks are divided among them, so that they wait less for each other. The number never changes.
PARTITIONS = 16
_CONFIGS = {
    "cleanup.policy": "compact",
    # A process that starts reads the whole partition, and the last segment is not compacted.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A decision lists the transaction of every large task, each in about 80 bytes.
    "max.message.bytes": str(4 * 1024 * 1024),
}
_MAX_REPLICAS = 3
_MAX_WAIT_S = 0.1
_ACKS_ALL = -1
# A coordinator ends the transaction of a crashed driver after its timeout, and looks for them every
# 10 seconds (transaction.abort.timed.out.transaction.cleanup.interval.ms).
_STALL_S = DRIVER_TIMEOUT_MS / 1000 + 15


class _Read:
    """A sink's partition as far as this process has read it."""

    def __init__(self) -> None:
        self.position: StartOffset = BEGINNING
        self.decision: Decision | None = None


# A topic that was deleted and created again has another id.
_read: dict[tuple[Cluster, TopicId, str], _Read] = {}
_MAX_REMEMBERED = 1024
_checked: set[tuple[Cluster, TopicId]] = set()


def replication(brokers: int) -> tuple[int, dict[str, str]]:
    """Return the replication factor for decisions, whose loss would write rows twice, and the
    configs that belong to it."""
    if brokers < _MAX_REPLICAS:
        return max(brokers, 1), {}
    return _MAX_REPLICAS, {"min.insync.replicas": str(_MAX_REPLICAS - 1)}


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
        if (self._client.cluster, info.id) not in _checked:
            await self._check(info)

    async def _check(self, info: TopicInfo) -> None:
        """Check the topic once in a process."""
        brokers = len(self._client.cluster.metadata.brokers)
        if brokers > 1 and len(info.partition(self.partition.partition).replicas) == 1:
            logger.warning(
                "topic %s has replication factor 1 on %d brokers: the loss of a broker stops the "
                "sinks whose decisions it holds. Raise it with kafka-reassign-partitions",
                DECISION_TOPIC,
                brokers,
            )
        try:
            configs = await self._client.admin.describe_configs(
                ConfigResourceType.TOPIC, DECISION_TOPIC
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            configs = []
        for config in configs:
            if config.name == "cleanup.policy" and config.value != "compact":
                raise SinkError(
                    f"topic {DECISION_TOPIC} has cleanup.policy={config.value}, which would delete "
                    "the decisions of sinks: set it to compact"
                )
        if len(_checked) >= _MAX_REMEMBERED:
            _checked.clear()
        _checked.add((self._client.cluster, info.id))

    async def write_barrier(self, options: SinkOptions) -> int:
        """Write a record after all committed decisions. Return the offset after it.

        The record has no producer. If it is written twice, the offset of either one is right.
        """
        key, now_ms = f"{self._sink}/lease".encode(), self._client.cluster.world.clock.now_ms()
        options = replace(options, acks=_ACKS_ALL, delivery_timeout_s=self._patience_s)
        sender = BatchSender(self._client, options, ProducerIdAndEpoch())
        try:
            await sender.send(self.partition, build_batch([(key, b"", (), now_ms)]))
            await sender.flush()
        finally:
            await sender.close()
        return sender.offsets[self.partition] + 1

    async def read(self, end: int) -> Decision | None:
        """Return the last committed decision before an offset, which a barrier has returned. The
        caller has fenced the driver before it wrote the barrier."""
        topic = await self._topic()
        if len(_read) >= _MAX_REMEMBERED:
            _read.clear()
        state = _read.setdefault((self._client.cluster, topic.id, self._sink), _Read())
        if isinstance(state.position, int) and state.position > end:
            # Records were lost: an unclean leader election.
            state.position, state.decision = BEGINNING, None
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
        now = self._client.cluster.world.clock.monotonic
        patience_s = self._patience_s + _STALL_S
        deadline = now() + patience_s
        async with self._client.consumer(
            isolation=IsolationLevel.READ_COMMITTED, max_wait_s=_MAX_WAIT_S
        ) as consumer:
            await consumer.assign({self.partition: state.position})
            while (position := consumer.positions[self.partition]) < end:
                if now() > deadline:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"the decisions of sink {self._sink} could not be read up to offset {end} "
                        f"of {self.partition} within {patience_s:g} s: a transaction of "
                        f"another sink is open there since offset {position}",
                    )
                for record in await consumer.poll():
                    if record.key == self._sink.encode():
                        value = record.value
                        state.decision = None if value is None else from_json(self._sink, value)
                state.position = consumer.positions[self.partition]

    async def write(
        self,
        options: SinkOptions,
        decision: Decision,
        producer: ProducerIdAndEpoch,
        rows: Iterable[tuple[TopicPartition, bytes]] = (),
    ) -> None:
        """Write record batches with rows, then a decision, to the driver's transaction. The
        producer has written nothing before.

        The decision comes last, since an open transaction holds up the readers of its partition.
        """
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
            await sender.send_all(rows)
            await sender.flush()
            await sender.send(self.partition, batch)
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
        factor, configs = replication(len(self._client.cluster.metadata.brokers))
        try:
            await self._client.admin.create_topic(
                DECISION_TOPIC,
                partitions=PARTITIONS,
                replication_factor=factor,
                configs={**_CONFIGS, **configs},
            )
        except KafkaError as error:
            # Another sink has created it at the same time.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
