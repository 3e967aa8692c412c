"""A client of the classic protocol, in a group of either protocol."""

from __future__ import annotations

from uuid import UUID

from penstock.coordinator.consumer.embedded import read_assignment
from penstock.errors import ErrorCode
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from tests.coordinator.consumer_world import ConsumerWorld, TopicPartitions
from tests.coordinator.group_world import GROUP


class ClassicConsumer:
    """Rejoins whenever the coordinator asks for it. A cooperative client keeps its partitions
    meanwhile. An eager one revokes all of them and, if it leads, assigns all partitions.
    """

    def __init__(
        self,
        world: ConsumerWorld,
        name: str,
        *topics: str,
        instance: str | None = None,
        eager: bool = False,
    ) -> None:
        self.world = world
        self.eager = eager
        self.name = name
        self.topics = topics or ("t",)
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.owned: TopicPartitions = frozenset()
        self.joining: int | None = None
        self.syncing: int | None = None
        self.leads = False

    def run(self) -> ClassicConsumer:
        """Process a reply that has arrived, otherwise send a heartbeat."""
        if self.joining is None and self.syncing is None and (not self.id or self._must_rejoin()):
            self.join()
        if self.joining is not None and self.joining in self.world.replies:
            self._joined()
        if self.syncing is not None and self.syncing in self.world.replies:
            self._synced()
        return self

    def join(self) -> None:
        if self.eager:
            self.owned = frozenset()
        numbers: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self.owned):
            numbers.setdefault(topic, []).append(partition)
        owned = tuple(
            ConsumerProtocolSubscription.OwnedPartition(
                topic=self.world.image.topic_names[topic], partitions=tuple(listed)
            )
            for topic, listed in numbers.items()
            if topic in self.world.image.topic_names
        )
        metadata = encode_consumer_protocol(
            ConsumerProtocolSubscription(topics=self.topics, owned_partitions=owned), 1
        )
        self.joining = self.world.join(
            self.id, instance=self.instance, protocols={"cooperative": metadata}, client=self.name
        )

    def _must_rejoin(self) -> bool:
        code = self.world.beat(self.id, self.generation, self.instance)
        if code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            self.owned = frozenset()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        return code is not ErrorCode.NONE

    def _joined(self) -> None:
        assert self.joining is not None
        answer = self.world.joined(self.joining)
        self.joining = None
        self.id = answer.member_id or self.id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.join()
            return
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.id, self.owned = "", frozenset()
            return
        if answer.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            self.generation = -1
            return
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.generation = answer.generation_id
        self.leads = answer.leader == self.id
        shares = self._shares(sorted(member.member_id for member in answer.members))
        self.syncing = self.world.sync(
            self.id, self.generation, shares if self.leads else None, instance=self.instance
        )

    def _shares(self, member_ids: list[str]) -> dict[str, bytes]:
        if not self.eager:
            return dict.fromkeys(member_ids, b"")
        shares = {}
        for index, member_id in enumerate(member_ids):
            mine = tuple(
                ConsumerProtocolAssignment.AssignedPartition(
                    topic=name, partitions=tuple(topic.partitions)[index :: len(member_ids)]
                )
                for name, topic in self.world.image.topics.items()
            )
            shares[member_id] = encode_consumer_protocol(
                ConsumerProtocolAssignment(assigned_partitions=mine)
            )
        return shares

    def _synced(self) -> None:
        assert self.syncing is not None
        answer = self.world.synced(self.syncing)
        self.syncing = None
        if answer.error_code == ErrorCode.NONE:
            assigned = read_assignment(answer.assignment, self.world.image)
            self.owned = frozenset(
                (topic, partition) for topic, numbers in assigned.items() for partition in numbers
            )

    def leave(self) -> None:
        self.world.leave(self.id)
        self.id, self.owned = "", frozenset()


def kind(world: ConsumerWorld) -> str:
    return world.machine.groups.by_id[GROUP].kind
