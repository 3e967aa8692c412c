"""Transactions through unmodified clients: their producers, and their consumers at both isolation
levels.

Knows the clients; the tests say what they must see.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

DEADLINE_S = 60.0
# A fetch at the end of a partition is answered soon.
FETCH_WAIT_MS = 10
T = TypeVar("T")
# The values of each partition.
Values = Mapping[int, Sequence[bytes]]


class TransactionalProducer(ABC):
    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, values: Values) -> None:
        """Send records, and return when all of them are acknowledged."""

    @abstractmethod
    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Add a group's offsets to the transaction."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Release the client's resources. An open transaction stays open."""


class TransactionClient(ABC):
    """Each method uses a client of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producers: list[TransactionalProducer] = []

    def producer(
        self, transactional_id: str, timeout_ms: int = int(DEADLINE_S * 1000)
    ) -> TransactionalProducer:
        """Return a producer that has initialized its transactions."""
        made = self._new_producer(transactional_id, timeout_ms)
        self._producers.append(made)
        return made

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    @abstractmethod
    def _new_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer: ...

    @abstractmethod
    def is_fenced(self, error: BaseException) -> bool:
        """Return True if the error says that another producer has taken over."""

    @abstractmethod
    def end_offsets(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        """Return the last stable offsets, or the high watermarks."""

    @abstractmethod
    def read(self, topic: str, partitions: int, *, committed: bool) -> dict[int, list[bytes]]:
        """Return all values from the beginning to the last stable offset, or to the high
        watermark."""

    @abstractmethod
    def committed_offsets(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """Return the group's committed offsets, without waiting for pending ones."""


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic with a replica on every broker, up to three."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    factor = min(3, len(admin.list_topics(timeout=DEADLINE_S).brokers))
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(DEADLINE_S)


# confluent-kafka


class ConfluentProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Values) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for partition, several in values.items():
            for value in several:
                self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        assert self._producer.flush(DEADLINE_S) == 0
        if failures:
            raise KafkaException(failures[0])

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0}
        )
        try:
            self._producer.send_offsets_to_transaction(
                [
                    confluent_kafka.TopicPartition(topic, partition, offset)
                    for partition, offset in offsets.items()
                ],
                consumer.consumer_group_metadata(),
                DEADLINE_S,
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        self._producer.purge()


class ConfluentTransactions(TransactionClient):
    def _new_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return ConfluentProducer(self.bootstrap, transactional_id, timeout_ms)

    def is_fenced(self, error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in (
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        )

    def end_offsets(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        consumer = self._consumer(committed)
        try:
            return {
                partition: consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(topic, partition), timeout=DEADLINE_S
                )[1]
                for partition in range(partitions)
            }
        finally:
            consumer.close()

    def read(self, topic: str, partitions: int, *, committed: bool) -> dict[int, list[bytes]]:
        consumer = self._consumer(committed)
        found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        try:
            consumer.assign(
                [
                    confluent_kafka.TopicPartition(topic, partition, 0)
                    for partition in range(partitions)
                ]
            )
            while len(ended) < partitions:
                assert time.monotonic() < deadline, f"the end of {topic} was not reached: {ended}"
                message: Any = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return found

    def committed_offsets(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        consumer = self._consumer(False, group)
        try:
            offsets = consumer.committed(
                [
                    confluent_kafka.TopicPartition(topic, partition)
                    for partition in range(partitions)
                ],
                timeout=DEADLINE_S,
            )
        finally:
            consumer.close()
        return {
            committed.partition: None if committed.offset < 0 else committed.offset
            for committed in offsets
        }

    def _consumer(self, committed: bool, group: str = "assigned-only") -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "isolation.level": isolation(committed),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "log_level": 0,
            }
        )


# kafka-python


class KafkaPythonProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
            retry_backoff_ms=20,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Values) -> None:
        futures = [
            self._producer.send(topic, value, partition=partition)
            for partition, several in values.items()
            for value in several
        ]
        for future in futures:
            future.get(DEADLINE_S)

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._producer.send_offsets_to_transaction(
            {
                kafka.TopicPartition(topic, partition): kafka.structs.OffsetAndMetadata(
                    offset, "", -1
                )
                for partition, offset in offsets.items()
            },
            group,
        )

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonTransactions(TransactionClient):
    def _new_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return KafkaPythonProducer(self.bootstrap, transactional_id, timeout_ms)

    def is_fenced(self, error: BaseException) -> bool:
        return isinstance(
            error, kafka.errors.ProducerFencedError | kafka.errors.InvalidProducerEpochError
        )

    def end_offsets(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        with self._consumer(committed) as consumer:
            found = consumer.end_offsets(kafka_python_partitions(topic, partitions))
        return {partition.partition: offset for partition, offset in found.items()}

    def read(self, topic: str, partitions: int, *, committed: bool) -> dict[int, list[bytes]]:
        values: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        deadline = time.monotonic() + DEADLINE_S
        assigned = kafka_python_partitions(topic, partitions)
        with self._consumer(committed) as consumer:
            consumer.assign(assigned)
            consumer.seek_to_beginning(*assigned)
            ends = consumer.end_offsets(assigned)
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                assert time.monotonic() < deadline, f"the end of {topic} was not reached: {ends}"
                for partition, records in consumer.poll(timeout_ms=20).items():
                    values[partition.partition] += [record.value for record in records]
        return values

    def committed_offsets(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        with self._consumer(False, group) as consumer:
            return {
                partition.partition: consumer.committed(partition)
                for partition in kafka_python_partitions(topic, partitions)
            }

    def _consumer(self, committed: bool, group: str | None = None) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            isolation_level=isolation(committed),
            enable_auto_commit=False,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )


def kafka_python_partitions(topic: str, partitions: int) -> list[kafka.TopicPartition]:
    return [kafka.TopicPartition(topic, partition) for partition in range(partitions)]


# aiokafka


class AiokafkaProducer(TransactionalProducer):
    """Its event loop runs only during calls, which is enough: a producer has nothing to do
    between them."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                retry_backoff_ms=20,
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Values) -> None:
        async def send() -> None:
            futures = [
                await self._producer.send(topic, value, partition=partition)
                for partition, several in values.items()
                for value in several
            ]
            results = await asyncio.gather(*futures, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

        self._run(send())

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        positions = {
            aiokafka.TopicPartition(topic, partition): offset
            for partition, offset in offsets.items()
        }
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            """The sender of a fenced producer has failed, and so does stopping it."""
            await asyncio.gather(self._producer.stop(), return_exceptions=True)

        self._run(stop())
        self._runner.close()

    def _run(self, call: Awaitable[T]) -> T:
        return self._runner.run(asyncio.wait_for(call, DEADLINE_S))


class AiokafkaTransactions(TransactionClient):
    def _new_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return AiokafkaProducer(self.bootstrap, transactional_id, timeout_ms)

    def is_fenced(self, error: BaseException) -> bool:
        return isinstance(
            error, aiokafka.errors.ProducerFenced | aiokafka.errors.InvalidProducerEpoch
        )

    def end_offsets(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        async def ask(consumer: aiokafka.AIOKafkaConsumer) -> dict[int, int]:
            found = await consumer.end_offsets(aiokafka_partitions(topic, partitions))
            return {partition.partition: offset for partition, offset in found.items()}

        return self._with_consumer(committed, None, ask)

    def read(self, topic: str, partitions: int, *, committed: bool) -> dict[int, list[bytes]]:
        async def read(consumer: aiokafka.AIOKafkaConsumer) -> dict[int, list[bytes]]:
            values: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
            assigned = aiokafka_partitions(topic, partitions)
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            ends = await consumer.end_offsets(assigned)
            while any([await consumer.position(each) < end for each, end in ends.items()]):
                for partition, records in (await consumer.getmany(timeout_ms=20)).items():
                    values[partition.partition] += [record.value for record in records]
            return values

        return self._with_consumer(committed, None, read)

    def committed_offsets(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        async def ask(consumer: aiokafka.AIOKafkaConsumer) -> dict[int, int | None]:
            assigned = aiokafka_partitions(topic, partitions)
            consumer.assign(assigned)
            return {each.partition: await consumer.committed(each) for each in assigned}

        return self._with_consumer(False, group, ask)

    def _with_consumer(
        self,
        committed: bool,
        group: str | None,
        use: Callable[[aiokafka.AIOKafkaConsumer], Awaitable[T]],
    ) -> T:
        async def call() -> T:
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=group,
                isolation_level=isolation(committed),
                enable_auto_commit=False,
                fetch_max_wait_ms=FETCH_WAIT_MS,
            ) as consumer:
                return await use(consumer)

        return asyncio.run(asyncio.wait_for(call(), DEADLINE_S))


def aiokafka_partitions(topic: str, partitions: int) -> list[aiokafka.TopicPartition]:
    return [aiokafka.TopicPartition(topic, partition) for partition in range(partitions)]


def isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"
