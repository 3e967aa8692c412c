"""Group members with unmodified clients, each in its own thread, and the events they record.

Knows the clients; the tests check the events.
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
TIMEOUT_S = 40.0


class Event(NamedTuple):
    """`kind` is assigned, revoked, read or committed; `generation` is -1 if the client does not
    report it."""

    at: float
    member: str
    kind: str
    partitions: frozenset[int]
    generation: int = -1
    offset: int = -1


class Member(ABC):
    """Consumes and commits until `leave` is called."""

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
        self._thread.join(TIMEOUT_S)
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
        except BaseException as error:  # noqa: BLE001 - the test checks the error
            self.error = error
        self.owned = frozenset()

    @abstractmethod
    def work(self) -> None:
        """Consume until `self._leaving` is set."""


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
            self.note(
                "assigned", (partition.partition for partition in partitions), _generation(consumer)
            )

        def revoked(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.note("revoked", (partition.partition for partition in partitions))

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
            pass  # No longer the owner: the next owner reads these records again.


def _generation(consumer: Consumer) -> int:
    """Read the generation from librdkafka's group metadata: "CGMDv2:", then an int32."""
    metadata: Any = consumer.consumer_group_metadata()
    return int.from_bytes(metadata[7:11], "little", signed=True)


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

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the package is not typed
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.note(
                    "assigned",
                    (partition.partition for partition in assigned),
                    consumer._coordinator._generation.generation_id,
                )

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", (partition.partition for partition in revoked))

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

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the package is not typed
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.note(
                    "assigned",
                    (partition.partition for partition in assigned),
                    consumer._coordinator.generation,
                )

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", (partition.partition for partition in revoked))

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


def wait_for(condition: Callable[[], bool], failure: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, failure()
        time.sleep(0.02)


def wait_shared(members: list[Member], partitions: int) -> None:
    """Wait until every partition has exactly one owner and the assignment is balanced."""

    def shared() -> bool:
        owned = [member.owned for member in members]
        counts = [len(partitions_) for partitions_ in owned]
        return (
            sum(counts) == partitions
            and frozenset().union(*owned) == frozenset(range(partitions))
            and max(counts) - min(counts) <= 1
        )

    wait_for(
        shared,
        lambda: (
            "the partitions are not assigned evenly: "
            f"{ {m.name: (sorted(m.owned), m.error) for m in members} }"
        ),
    )


def check_one_owner(members: list[Member]) -> None:
    """Check that no partition has two owners in one generation."""
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


def check_commits_never_decrease(members: list[Member]) -> None:
    """Check that committed offsets never decrease: the broker refuses commits of former owners."""
    last: dict[int, int] = {}
    for event in sorted(
        event for member in members for event in member.events if event.kind == "committed"
    ):
        (partition,) = event.partitions
        assert event.offset >= last.get(partition, 0), (
            f"the committed offset of {partition} went back to {event.offset}"
        )
        last[partition] = event.offset
