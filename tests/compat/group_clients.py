"""Members of a consumer group, each with an unmodified client in a thread of its own, and what each
of them saw.

Knows the clients; what their logs must say is for the tests.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka import Consumer, KafkaException, TopicPartition

HEARTBEAT_MS = 200
SESSION_MS = 1_500
PATIENCE_S = 40.0


class Event(NamedTuple):
    """`kind` is assigned, revoked, read or committed. The generation is the one in which it
    happened, where the client tells."""

    at: float
    member: str
    kind: str
    partitions: frozenset[int]
    generation: int = -1
    offset: int = -1


class Member(ABC):
    """Reads, and commits what it read, until it is told to leave."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, **settings: Any) -> None:
        self.bootstrap, self.topic, self.group, self.name, self.settings = (
            bootstrap,
            topic,
            group,
            name,
            settings,
        )
        self.events: list[Event] = []
        self.owned: frozenset[int] = frozenset()
        self.error: BaseException | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} did not stop"
        assert self.error is None, f"{self.name} failed: {self.error!r}"

    def note(
        self, kind: str, partitions: Iterable[int], generation: int = -1, offset: int = -1
    ) -> None:
        partitions = frozenset(partitions)
        if kind == "assigned":
            self.owned |= partitions
        elif kind == "revoked":
            self.owned -= partitions
        self.events.append(Event(time.monotonic(), self.name, kind, partitions, generation, offset))

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test that started it is told
            self.error = error
        self.owned = frozenset()

    @abstractmethod
    def work(self) -> None:
        """Until `self._leaving`."""


class ConfluentMember(Member):
    def work(self) -> None:
        given = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        classic = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        given |= {} if self.settings.get("group.protocol") == "consumer" else classic
        consumer = Consumer({**given, **self.settings})

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.note("assigned", (one.partition for one in partitions), _generation(consumer))

        def revoked(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.note("revoked", (one.partition for one in partitions))

        consumer.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        try:
            while not self._leaving.is_set():
                message = consumer.poll(0.05)
                if message is None or message.error() is not None:
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                self.note("read", [partition], offset=offset or 0)
                self._commit(consumer, message, partition)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, message: Any, partition: int) -> None:
        try:
            consumer.commit(message=message, asynchronous=False)
            self.note("committed", [partition], offset=message.offset() + 1)
        except KafkaException:
            pass  # it is not the owner any more: what it read is read again by the next


def _generation(consumer: Consumer) -> int:
    """librdkafka tells it in what a transactional producer would be given: "CGMDv2:", then the
    generation as an int32."""
    told: Any = consumer.consumer_group_metadata()
    return int.from_bytes(told[7:11], "little", signed=True)


class KafkaPythonMember(Member):
    def work(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **self.settings,
        )
        member = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.note(
                    "assigned",
                    (one.partition for one in assigned),
                    consumer._coordinator._generation.generation_id,
                )

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", (one.partition for one in revoked))

        consumer.subscribe([self.topic], listener=Listener())
        try:
            while not self._leaving.is_set():
                for partition, records in consumer.poll(timeout_ms=50).items():
                    self.note("read", [partition.partition], offset=records[-1].offset)
                    self._commit(consumer, partition, records[-1].offset + 1)
        finally:
            consumer.close()

    def _commit(self, consumer: Any, partition: Any, offset: int) -> None:
        try:
            consumer.commit({partition: kafka.structs.OffsetAndMetadata(offset, "", -1)})
            self.note("committed", [partition.partition], offset=offset)
        except kafka.errors.CommitFailedError:
            pass


class AiokafkaMember(Member):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **self.settings,
        )
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.note(
                    "assigned",
                    (one.partition for one in assigned),
                    consumer._coordinator.generation,
                )

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", (one.partition for one in revoked))

        consumer.subscribe([self.topic], listener=Listener())
        await consumer.start()
        try:
            while not self._leaving.is_set():
                for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                    self.note("read", [partition.partition], offset=records[-1].offset)
                    await self._commit(consumer, partition, records[-1].offset + 1)
        finally:
            await consumer.stop()

    async def _commit(self, consumer: Any, partition: Any, offset: int) -> None:
        from aiokafka.errors import CommitFailedError, IllegalStateError

        try:
            await consumer.commit({partition: offset})
            self.note("committed", [partition.partition], offset=offset)
        except (CommitFailedError, IllegalStateError):
            pass


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def wait_shared(members: list[Member], partitions: int) -> None:
    """Until every partition has exactly one owner, and no member has two more than another."""

    def shared() -> bool:
        owned = [member.owned for member in members]
        counts = [len(one) for one in owned]
        return (
            sum(counts) == partitions
            and frozenset().union(*owned) == frozenset(range(partitions))
            and max(counts) - min(counts) <= 1
        )

    wait_for(
        shared,
        lambda: (
            "partitions are not shared out: "
            f"{ {m.name: (sorted(m.owned), m.error) for m in members} }"
        ),
    )


def check_one_owner(members: list[Member]) -> None:
    """No partition was given to two members in one generation."""
    owners: dict[tuple[int, int], str] = {}
    for event in sorted(
        event for member in members for event in member.events if event.kind == "assigned"
    ):
        assert event.generation > 0 or not event.partitions
        for partition in event.partitions:
            other = owners.setdefault((event.generation, partition), event.member)
            assert other == event.member, (
                f"{other} and {event.member} both own {partition} in generation {event.generation}"
            )


def check_commits_rise(members: list[Member]) -> None:
    """What was committed for a partition, in the order of the answers, goes back only by what the
    next owner reads again: never, since a commit is refused to whoever is not the owner."""
    last: dict[int, int] = {}
    for event in sorted(
        event for member in members for event in member.events if event.kind == "committed"
    ):
        (partition,) = event.partitions
        assert event.offset >= last.get(partition, 0), (
            f"the committed offset of {partition} went back to {event.offset}"
        )
        last[partition] = event.offset
