"""Looks at consumer groups twice: their states, members and committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.cli.doctor.notes import REQUEST_S, Notes, is_reached
from penstock.client.admin.groups import CONSUMER, GroupDescription
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.health.groups import LONG_REBALANCE_MS, REBALANCING
from penstock.health.observations import Group, GroupOffset, Member
from penstock.ids import TopicPartition
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

# Groups that are looked at; --group names any other.
MAX_GROUPS = 200
_POLL_S = 0.5
# The oldest unread record is read in this many partitions of a group, within this time.
_MAX_READ = 10
_READ_S = 2.0
_READ_BYTES = 64 * 1024
_OFFSETS_TOPIC = "__consumer_offsets"
_NO_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)


@dataclass(slots=True)
class GroupLook:
    """What was seen of a group; the fields are those of `Group`."""

    id: str
    named: bool
    states: list[str] = field(default_factory=list)
    members: tuple[Member, ...] = ()
    committed_before: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    unread_age_ms: dict[TopicPartition, int] = field(default_factory=dict)
    over_ms: int = 0
    error: str = ""
    exists: bool = True

    def group(self, offsets: Mapping[TopicPartition, GroupOffset], notes: Notes) -> Group:
        topic = notes.topics.get(_OFFSETS_TOPIC)
        partition = None
        if topic is not None and topic.partitions:
            partition = TopicPartition(_OFFSETS_TOPIC, _hash(self.id) % topic.partitions)
        return Group(
            self.id,
            tuple(self.states),
            self.members,
            offsets,
            self.over_ms,
            self.named,
            self.error,
            self.exists,
            partition,
        )


async def list_consumer_groups(client: Client, notes: Notes) -> list[str]:
    """Return the consumer groups of the brokers that answer, sorted."""
    found: set[str] = set()

    async def of_broker(broker_id: int) -> None:
        connection = await client.cluster.broker(broker_id)
        response = await connection.call(ListGroupsRequest(), ListGroupsResponse)
        found.update(
            group.group_id for group in response.groups if group.protocol_type in (CONSUMER, "")
        )

    await asyncio.gather(
        *(
            notes.look(f"the groups of broker {broker.id}", of_broker(broker.id), REQUEST_S)
            for broker in notes.brokers.values()
            if is_reached(broker) and not broker.fenced
        )
    )
    return sorted(found)


async def look_at_group(
    client: Client, look: GroupLook, over_s: float, slots: asyncio.Semaphore
) -> None:
    """Look at a group twice, and on while it is rebalancing, for as long as a rebalance may take.
    `slots` limits the requests in flight."""
    clock = client.cluster.world.clock
    try:
        async with slots:
            await _describe(client, look)
            look.committed_before = await _committed(client, look)
        began_s = clock.monotonic()
        await asyncio.sleep(over_s)
        while True:
            async with slots:
                await _describe(client, look)
            look.over_ms = int((clock.monotonic() - began_s) * 1000)
            if look.states[-1] not in REBALANCING or look.over_ms > LONG_REBALANCE_MS:
                break
            await asyncio.sleep(_POLL_S)
        async with slots:
            look.committed = await _committed(client, look)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            look.exists = False
        elif error.code in _NO_COORDINATOR:
            look.error = error.message
        else:
            raise


async def _describe(client: Client, look: GroupLook) -> None:
    described: GroupDescription = await client.groups.describe_group(look.id)
    look.states.append(described.state)
    look.members = tuple(
        Member(
            member.id,
            member.client_id,
            member.host,
            None if member.assignment_error else len(member.assignment),
        )
        for member in described.members
    )


async def _committed(client: Client, look: GroupLook) -> dict[TopicPartition, int]:
    offsets = await client.groups.fetch_offsets(look.id)
    return {partition: committed.offset for partition, committed in offsets.items()}


async def read_unread_ages(client: Client, look: GroupLook, notes: Notes) -> None:
    """Note the age of the first record that the group has not read, where it is most behind."""
    lags = {
        name: notes.offsets[name].end - committed
        for name, committed in look.committed.items()
        if name in notes.offsets
        and notes.offsets[name].start <= committed < notes.offsets[name].end
    }
    most = sorted(lags, key=lambda name: lags[name], reverse=True)[:_MAX_READ]
    if not most:
        return
    clock = client.cluster.world.clock
    until_s = clock.monotonic() + _READ_S
    async with client.consumer(max_wait_s=0.2, partition_max_bytes=_READ_BYTES) as consumer:
        await consumer.assign({name: look.committed[name] for name in most})
        while len(look.unread_age_ms) < len(most) and clock.monotonic() < until_s:
            for record in await consumer.poll():
                name = TopicPartition(record.topic, record.partition)
                if name not in look.unread_age_ms:
                    look.unread_age_ms[name] = max(clock.now_ms() - record.timestamp, 0)


def _hash(text: str) -> int:
    """Java's String.hashCode without its sign, by which Kafka chooses a group's partition."""
    number = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        number = (31 * number + unit) & 0xFFFF_FFFF
    return number & 0x7FFF_FFFF
