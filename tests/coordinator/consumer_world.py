"""A group machine and clients of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode
from penstock.metadata.image import BrokerImage, MetadataImage, PartitionState, TopicImage
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.schema import fields_of
from tests.coordinator.group_world import GROUP, World

# Assignments are computed immediately, so that tests need not wait for the interval.
IMMEDIATE = GroupSettings(consumer_assignment_interval_ms=0)

TopicPartitions = frozenset[tuple[UUID, int]]


def image_of(
    counts: Mapping[str, int],
    racks: Mapping[int, str] | None = None,
    base: MetadataImage | None = None,
) -> MetadataImage:
    """Return an image of topics with these partition counts, over the brokers that have racks.
    Topics of `base` with the same count keep their images."""
    brokers = racks or {}
    known = {} if base is None else dict(base.topics)
    next_id = (
        1_000 if base is None else max((topic.id.int for topic in known.values()), default=999) + 1
    )
    images: dict[str, TopicImage] = {}
    for name, count in counts.items():
        before = known.get(name)
        if before is not None and len(before.partitions) == count:
            images[name] = before
            continue
        replicas = [(partition % len(brokers),) if brokers else (0,) for partition in range(count)]
        states = {
            partition: PartitionState(replicas=brokers_of, isr=brokers_of, leader=brokers_of[0])
            for partition, brokers_of in enumerate(replicas)
        }
        images[name] = TopicImage(name, UUID(int=next_id) if before is None else before.id, states)
        next_id += before is None
    return MetadataImage(
        topics=images,
        topic_names={topic.id: name for name, topic in images.items()},
        brokers={
            number: BrokerImage(number, 0, UUID(int=number), rack=rack)
            for number, rack in brokers.items()
        },
    )


def changed(
    request: ConsumerGroupHeartbeatRequest, **changes: object
) -> ConsumerGroupHeartbeatRequest:
    """Return a copy with other field values; messages are no dataclasses."""
    fields = {
        field.name: getattr(request, field.name)
        for field in fields_of(ConsumerGroupHeartbeatRequest)
    }
    return ConsumerGroupHeartbeatRequest(**{**fields, **changes})


class ConsumerWorld(World):
    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        settings: GroupSettings = IMMEDIATE,
        image: MetadataImage | None = None,
    ) -> None:
        super().__init__(settings, image or image_of(counts or {"t": 6}))

    def send(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        ticket = self.new_ticket()
        step = self.run(
            lambda: self.machine.consumer_group_heartbeat(
                request, self.caller(version), ticket, self.now
            )
        )
        response = self.reply(ticket, ConsumerGroupHeartbeatResponse)
        assert not (
            step.immediate
            and (step.records or response.assignment is not None or response.error_code)
        )
        return response

    def change_topics(self, counts: Mapping[str, int]) -> None:
        self.take(self.change_image(image_of(counts, base=self.image)))

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.machine.groups.by_id[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def consumer(
        self,
        name: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 60_000,
    ) -> Consumer:
        return Consumer(self, name, topics or ("t",), regex, instance, rack, assignor, rebalance_ms)

    def settle(self, consumers: Iterable[Consumer], rounds: int = 8) -> None:
        for _ in range(rounds):
            for consumer in consumers:
                consumer.beat()


class Consumer:
    """Sends the fields that have changed, adopts its assignment, and reports what it owns with its
    next heartbeat."""

    def __init__(
        self,
        world: ConsumerWorld,
        name: str,
        topics: tuple[str, ...],
        regex: str | None,
        instance: str | None,
        rack: str | None,
        assignor: str | None,
        rebalance_ms: int,
    ) -> None:
        self.world = world
        self.id = name
        self.topics: tuple[str, ...] | None = topics if regex is None else None
        self.full = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=0,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=(),
        )
        self.epoch = 0
        self.owned: TopicPartitions = frozenset()
        self.error = ErrorCode.NONE
        # A response was lost: the client then sends a full request, which gets a full response.
        self.lost = False

    def join(self) -> Consumer:
        self.epoch, self.owned = 0, frozenset()
        self.take(self.world.send(self.full))
        return self

    def beat(self) -> ErrorCode:
        """Send a heartbeat. A client that is fenced or unknown rejoins with the next one."""
        if self.epoch == 0:
            self.join()
        else:
            self.take(self.world.send(self.whole() if self.lost else self.short()))
        return self.error

    def beat_and_lose_the_response(self) -> None:
        """Send a heartbeat whose response is lost."""
        self.world.send(self.whole() if self.lost else self.short())
        self.lost = True

    def whole(self) -> ConsumerGroupHeartbeatRequest:
        return changed(self.full, member_epoch=self.epoch, topic_partitions=_listed(self.owned))

    def short(self) -> ConsumerGroupHeartbeatRequest:
        """Return the request of a client that only reports what it owns."""
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.full.instance_id,
            topic_partitions=_listed(self.owned),
        )

    def idle(self) -> ConsumerGroupHeartbeatRequest:
        return changed(self.short(), topic_partitions=None)

    def subscribe(self, *topics: str) -> ErrorCode:
        self.full = changed(self.full, subscribed_topic_names=topics)
        self.take(
            self.world.send(
                self.whole() if self.lost else changed(self.short(), subscribed_topic_names=topics)
            )
        )
        return self.error

    def leave(self, temporarily: bool = False) -> ErrorCode:
        request = changed(
            self.short(), member_epoch=-2 if temporarily else -1, topic_partitions=None
        )
        self.error = ErrorCode(self.world.send(request).error_code)
        self.epoch, self.owned = 0, frozenset()
        return self.error

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.error = ErrorCode(response.error_code)
        self.lost = False
        if self.error is not ErrorCode.NONE:
            self.epoch, self.owned = 0, frozenset()
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = frozenset(
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )


def _listed(
    partitions: TopicPartitions,
) -> tuple[ConsumerGroupHeartbeatRequest.TopicPartition, ...]:
    numbers: dict[UUID, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers.setdefault(topic, []).append(partition)
    return tuple(
        ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=topic, partitions=tuple(listed))
        for topic, listed in numbers.items()
    )
