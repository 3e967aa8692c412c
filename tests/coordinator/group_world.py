"""A group machine with what a test needs around it: a log, a clock, tickets and replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Never, TypedDict, TypeVar, Unpack
from uuid import UUID

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.consumer.group import ConsumerGroup, MemberState
from penstock.coordinator.groups.machine import GroupMachine
from penstock.coordinator.groups.table import Caller, Group, GroupSettings
from penstock.coordinator.runtime.step import MARKER_RECORD, Batch, Now, Record, Step, Ticket
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T = TypeVar("T")

# Wall clock time at the start of a test.
WALL_MS = 1_700_000_000_000
GROUP = "g"


def topics(*names: str, partitions: int = 4, first_id: int = 1_000) -> MetadataImage:
    state = PartitionState(replicas=(1,), isr=(1,), leader=1)
    images = {
        name: TopicImage(name, UUID(int=first_id + index), dict.fromkeys(range(partitions), state))
        for index, name in enumerate(names)
    }
    return MetadataImage(
        topics=images, topic_names={topic.id: name for name, topic in images.items()}
    )


def subscription(*names: str) -> bytes:
    return encode_consumer_protocol(ConsumerProtocolSubscription(topics=names))


class CommitDetails(TypedDict, total=False):
    topic: str
    partition: int
    instance: str | None
    group: str
    version: int
    metadata: str | None
    retention_ms: int


def snapshot(value: object) -> object:
    """Copy nested dictionaries; members and topics are values."""
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return value


def state_of(machine: GroupMachine) -> object:
    """Return everything that a step may change, for comparison."""
    groups = machine.groups
    return (
        {
            group.id: (group.kind, list(getattr(group, "members", ())), snapshot(vars(group)))
            for group in groups.by_id.values()
        },
        {group_id: dict(groups.offsets.of_group(group_id)) for group_id, _ in groups.offsets},
        deepcopy(groups.offsets.pending._by_group),
        deepcopy(groups.offsets.pending._by_producer),
        dict(groups.deadlines._due),
    )


def check_counts(group: Group) -> None:
    """What a group counts must be what its members are."""
    if isinstance(group, ClassicGroup):
        classic = list(group.members.values())
        names = Counter(name for member in classic for name in dict(member.protocols))
        assert group._supporters == names
        assert group.joining_count == sum(member.joining is not None for member in classic)
        assert group.least_record_bytes == sum(member.least_record_bytes for member in classic)
    elif isinstance(group, ConsumerGroup):
        members = list(group.members.values())
        assert group.topic_members == Counter(topic for m in members for topic in m.topics)
        assert group.regex_members == Counter(m.regex for m in members if m.regex)
        assert group.stable_members == Counter(
            m.epoch for m in members if m.state is MemberState.STABLE
        )
        assert group.classic_count == sum(m.classic is not None for m in members)
        assert group.static_ids == {m.instance_id: m.id for m in members if m.instance_id}


class World:
    def __init__(
        self, settings: GroupSettings | None = None, image: MetadataImage | None = None
    ) -> None:
        self.settings = settings or GroupSettings()
        self.image = image or topics("t", "u")
        self.now_ms = 0
        # The records, and the batch of each.
        self.log: list[Record] = []
        self.batches: list[Batch] = []
        self.replies: dict[int, object] = {}
        self.log_lines: list[str] = []
        # Ticket -> the response to send if the machine is unloaded before it replies.
        self.tickets: dict[int, object] = {}
        self.uuids = 0
        self.machine = self.new_machine()
        self.take(self.machine.loaded(self.now))

    def new_machine(self) -> GroupMachine:
        return GroupMachine(lambda: self.settings, self.image, self.new_uuid)

    def new_uuid(self) -> UUID:
        self.uuids += 1
        return UUID(int=self.uuids - 1)

    def caller(self, version: int, client_id: str = "c") -> Caller:
        return Caller(client_id, "/127.0.0.1", version)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms)

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def take(self, step: Step[Never]) -> Step[Never]:
        records = (MARKER_RECORD,) if step.batch.control else step.records
        self.log.extend(records)
        self.batches.extend([step.batch] * len(records))
        for ticket, response in step.replies:
            assert ticket not in self.replies, f"ticket {ticket} got two replies"
            self.replies[ticket] = response
        self.log_lines.extend(step.log_lines)
        return step

    def run(self, decide: Callable[[], Step[Never]]) -> Step[Never]:
        """Run a request. A step that writes is refused first: reverting it must change nothing."""
        before, uuids = state_of(self.machine), self.uuids
        step = decide()
        if step.writes:
            step.undo.revert()
            assert state_of(self.machine) == before
            self.uuids = uuids
            step = decide()
        for group in self.machine.groups.by_id.values():
            check_counts(group)
        return self.take(step)

    def change_image(self, image: MetadataImage) -> Step[Never]:
        """Give the machine another image; the step may still be refused."""
        before, self.image = self.image, image
        deleted = [
            name for name, topic in before.topics.items() if topic.id not in image.topic_names
        ]
        return self.machine.image_changed(image, deleted, self.now)

    def reload(self) -> None:
        """Move the coordinator: a new machine replays the log, and parked requests are refused."""
        for ticket in self.tickets.keys() - self.replies.keys():
            self.replies[ticket] = self.tickets[ticket]
        self.machine = self.replayed()
        self.take(self.machine.loaded(self.now))

    def replayed(self) -> GroupMachine:
        machine = self.new_machine()
        for record, batch in zip(self.log, self.batches, strict=True):
            machine.replay(record, batch)
        return machine

    def wait(self, ms: int) -> None:
        """Let time pass; run due work at its time."""
        until_ms = self.now_ms + ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.take(self.machine.run_due(self.now))
        self.now_ms = until_ms

    def new_ticket(self, refused: object = None) -> Ticket:
        ticket = Ticket(len(self.tickets))
        self.tickets[ticket] = refused
        return ticket

    def reply(self, ticket: int, kind: type[T]) -> T:
        response = self.replies[ticket]
        assert isinstance(response, kind)
        return response

    def join(
        self,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        version: int = 9,
        group: str = GROUP,
        client: str = "c",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
    ) -> int:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=tuple(
                JoinGroupRequest.Protocol(name=name, metadata=metadata)
                for name, metadata in offered.items()
            ),
        )
        ticket = self.new_ticket(JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self.run(
            lambda: self.machine.join_group(request, self.caller(version, client), ticket, self.now)
        )
        return ticket

    def joined(self, ticket: int) -> JoinGroupResponse:
        return self.reply(ticket, JoinGroupResponse)

    def member_id(self, client: str = "c") -> str:
        """Return the member id that MEMBER_ID_REQUIRED gives to a new member."""
        response = self.joined(self.join(client=client))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def sync(
        self,
        member: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> int:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_name=protocol,
            protocol_type=protocol_type,
            assignments=tuple(
                SyncGroupRequest.Assignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ),
        )
        ticket = self.new_ticket(SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self.run(lambda: self.machine.sync_group(request, self.caller(5), ticket, self.now))
        return ticket

    def synced(self, ticket: int) -> SyncGroupResponse:
        return self.reply(ticket, SyncGroupResponse)

    def beat(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member, group_instance_id=instance
        )
        ticket = self.new_ticket()
        step = self.run(lambda: self.machine.heartbeat(request, ticket, self.now))
        assert step.immediate
        return ErrorCode(self.reply(ticket, HeartbeatResponse).error_code)

    def leave(
        self, *members: str, instance: str | None = None, version: int = 5
    ) -> LeaveGroupResponse:
        return self.reply(
            self.send_leave(*members, instance=instance, version=version), LeaveGroupResponse
        )

    def send_leave(self, *members: str, instance: str | None = None, version: int = 5) -> int:
        leaving = tuple(
            LeaveGroupRequest.Member(member_id=member, group_instance_id=instance)
            for member in members
        )
        request = LeaveGroupRequest(group_id=GROUP, member_id=members[0], members=leaving)
        ticket = self.new_ticket()
        self.run(lambda: self.machine.leave_group(request, self.caller(version), ticket, self.now))
        return ticket

    def commit(
        self, offset: int, member: str = "", generation: int = -1, **details: Unpack[CommitDetails]
    ) -> ErrorCode:
        ticket = self.send_commit(offset, member, generation, **details)
        return self.commit_error(ticket)

    def commit_error(self, ticket: int) -> ErrorCode:
        ((answered,),) = (t.partitions for t in self.reply(ticket, OffsetCommitResponse).topics)
        return ErrorCode(answered.error_code)

    def send_commit(
        self,
        offset: int,
        member: str = "",
        generation: int = -1,
        *,
        topic: str = "t",
        partition: int = 0,
        instance: str | None = None,
        group: str = GROUP,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> int:
        commit = OffsetCommitRequest.Topic.Partition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=7,
            committed_metadata=metadata,
        )
        known = self.image.topics.get(topic)
        named = OffsetCommitRequest.Topic(name=topic, partitions=(commit,))
        if version >= 10:
            named = OffsetCommitRequest.Topic(
                topic_id=known.id if known else UUID(int=99), partitions=(commit,)
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=(named,),
        )
        ticket = self.new_ticket()
        self.run(
            lambda: self.machine.offset_commit(request, self.caller(version), ticket, self.now)
        )
        return ticket

    def committed(self, topic: str = "t", partition: int = 0, group: str = GROUP) -> int:
        return self.offsets(group).get(TopicPartition(topic, partition), -1)

    def offsets(self, group: str = GROUP) -> dict[TopicPartition, int]:
        """Return all offsets of the group, as OffsetFetch without a list of partitions."""
        answered = self.machine.offset_fetch(
            OffsetFetchRequest.Group(group_id=group, topics=None), version=9
        )
        assert answered.error_code == ErrorCode.NONE
        return {
            TopicPartition(t.name, p.partition_index): p.committed_offset
            for t in answered.topics
            for p in t.partitions
        }

    @property
    def group(self) -> ClassicGroup:
        group = self.machine.groups.by_id[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def stable_group(self, *clients: str) -> list[str]:
        """Make a stable group in generation 1; return the member ids. The first member leads. Each
        member's assignment is its client id."""
        ids = [self.member_id(client) for client in clients]
        for member in ids:
            self.join(member)
        self.wait(2 * self.settings.initial_rebalance_delay_ms)
        for member in reversed(ids):
            self.sync(
                member,
                1,
                {m: c.encode() for m, c in zip(ids, clients, strict=True)}
                if member == ids[0]
                else None,
            )
        assert self.group.state_name == "Stable"
        return ids
