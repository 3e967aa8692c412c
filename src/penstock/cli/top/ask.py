"""Asks a cluster for a snapshot: all brokers in parallel, and a bounded number of requests.

A broker that does not answer leaves the others as they are. Everything is asked with Kafka's
protocol; the metrics pages of nodes, which know more, would be a further source of `Snapshot`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.cli.doctor.requests import list_offsets, log_dirs
from penstock.cli.top.snapshot import (
    LEADER,
    OBSERVER,
    VOTER,
    Broker,
    Group,
    LogDirs,
    Partition,
    Quorum,
    QuorumReplica,
    Snapshot,
    Topic,
)
from penstock.client.client import Client
from penstock.client.offsets import LATEST
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_TOP_GROUP_REQUESTS, MAX_TOP_PARTITIONS
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

T = TypeVar("T")

# Replicas that one DescribeLogDirs request names, so that no broker works for long at a time.
_REPLICAS_A_REQUEST = 2_000
# Groups of these types have committed offsets.
_WITH_OFFSETS = ("", "Classic", "Consumer")
_WITHOUT_MEMBERS = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a view shows. `pattern` selects topics and groups by their names. Groups are asked from
    `first_group` on, those with members first."""

    partitions: bool = True
    groups: bool = True
    first_group: int = 0
    max_groups: int = 100
    pattern: re.Pattern[str] | None = None

    def matches(self, name: str) -> bool:
        return self.pattern is None or self.pattern.search(name) is not None


async def ask(client: Client, forwarded: Client, wanted: Wanted) -> Snapshot:
    """Return a snapshot. Raises KafkaError if no broker answers.

    A broker forwards DescribeQuorum to the active controller, and answers the requests of a
    connection in order. `forwarded` has connections of its own, so that a controller that hangs
    does not hold back what the brokers answer themselves.
    """
    errors: list[str] = []
    topics = await client.admin.describe_topics()
    described = await client.admin.describe_cluster(with_fenced=True)
    brokers = [
        Broker(broker.id, f"{broker.host}:{broker.port}", broker.rack, broker.fenced)
        for broker in sorted(described.brokers, key=lambda broker: broker.id)
    ]
    live = [broker.id for broker in brokers if not broker.fenced]
    seen = [
        Topic(
            topic.name,
            topic.id,
            tuple(Partition(info.leader, info.replicas, info.isr) for info in topic.partitions),
        )
        for topic in topics
    ]
    leaders: dict[TopicPartition, int] = {}
    replicas: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in live}
    if wanted.partitions:
        leaders, replicas = _asked_partitions(seen, live, wanted, errors)
    at_s = client.cluster.world.clock.monotonic()
    quorum, directories, ends, (groups, group_count, committed) = await asyncio.gather(
        _noted("the quorum", _quorum(forwarded), errors),
        _log_dirs(client, replicas, errors),
        list_offsets(client.cluster, leaders, LATEST),
        _groups(client, live, wanted, errors),
    )
    ends |= await _further_ends(client, seen, committed, ends)
    counts = {topic.name: len(topic.partitions) for topic in seen}
    return Snapshot(
        at_s,
        described.id,
        tuple(
            replace(
                broker, log_dirs=directories.get(broker.id), silent=_silent(broker, directories)
            )
            for broker in brokers
        ),
        tuple(seen),
        tuple(_with_lag(group, committed.get(group.id), ends, counts) for group in groups),
        group_count,
        quorum,
        ends,
        tuple(dict.fromkeys(errors)),
    )


def _silent(broker: Broker, answered: Collection[int]) -> bool:
    return not broker.fenced and broker.id not in answered


def _asked_partitions(
    topics: Sequence[Topic], live: Collection[int], wanted: Wanted, errors: list[str]
) -> tuple[dict[TopicPartition, int], dict[int, list[TopicPartition]]]:
    """Return the leaders of the partitions to ask for, and by broker the replicas."""
    leaders: dict[TopicPartition, int] = {}
    replicas: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in live}
    count = 0
    for topic in topics:
        if not wanted.matches(topic.name):
            continue
        count += len(topic.partitions)
        if count > MAX_TOP_PARTITIONS:
            errors.append(
                f"rates and sizes are those of {MAX_TOP_PARTITIONS:,} partitions at most: choose "
                "topics with --filter"
            )
            break
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if partition.leader in replicas:
                leaders[name] = partition.leader
            for replica in partition.replicas:
                if replica in replicas:
                    replicas[replica].append(name)
    return leaders, replicas


async def _noted(subject: str, question: Awaitable[T], errors: list[str]) -> T | None:
    """Return the answer, or note why there is none."""
    try:
        return await question
    except KafkaError as error:
        errors.append(f"{subject}: {error}")
        return None


async def _quorum(client: Client) -> Quorum:
    info = await client.admin.describe_quorum()
    end = info.leader.log_end_offset
    replicas = {
        replica.id: QuorumReplica(OBSERVER, max(end - replica.log_end_offset, 0))
        for replica in info.observers
    }
    replicas |= {
        voter.id: QuorumReplica(
            LEADER if voter.id == info.leader_id else VOTER, max(end - voter.log_end_offset, 0)
        )
        for voter in info.voters
    }
    return Quorum(info.leader_id, info.leader_epoch, replicas)


async def _log_dirs(
    client: Client, replicas: Mapping[int, Sequence[TopicPartition]], errors: list[str]
) -> dict[int, LogDirs]:
    async def of_broker(broker_id: int, names: Sequence[TopicPartition]) -> LogDirs:
        sizes: dict[TopicPartition, int] = {}
        # A broker without replicas is asked for its directories.
        for start in range(0, max(len(names), 1), _REPLICAS_A_REQUEST):
            part = names[start : start + _REPLICAS_A_REQUEST]
            directories, found = await log_dirs(client.cluster, broker_id, part)
            sizes |= found
        online = [directory for directory in directories if not directory.error]
        return LogDirs(
            len(directories),
            len(directories) - len(online),
            bool(online) and all(directory.cordoned for directory in online),
            sizes,
        )

    answers = await asyncio.gather(
        *(
            _noted(f"broker {broker_id}", of_broker(broker_id, names), errors)
            for broker_id, names in replicas.items()
        )
    )
    return {
        broker_id: answer
        for broker_id, answer in zip(replicas, answers, strict=True)
        if answer is not None
    }


Offsets = dict[TopicPartition, int]


async def _groups(
    client: Client, live: Sequence[int], wanted: Wanted, errors: list[str]
) -> tuple[list[Group], int | None, dict[str, Offsets]]:
    """Return the groups of the view, the number of all, and the committed offsets of the former."""
    if not wanted.groups:
        return [], None, {}
    listings = await asyncio.gather(
        *(
            _noted(f"the groups of broker {broker_id}", _list_groups(client, broker_id), errors)
            for broker_id in live
        )
    )
    listed = sorted(
        (group for listing in listings for group in listing or () if wanted.matches(group.id)),
        key=lambda group: (group.state in _WITHOUT_MEMBERS, group.id),
    )
    window = listed[wanted.first_group : wanted.first_group + wanted.max_groups]
    committed: dict[str, Offsets] = {}
    slots = asyncio.Semaphore(MAX_TOP_GROUP_REQUESTS)

    async def look(group: Group) -> Group | None:
        if group.kind not in _WITH_OFFSETS:
            return group
        async with slots:
            try:
                described = await client.groups.describe_group(group.id)
                offsets = await client.groups.fetch_offsets(group.id)
            except KafkaError as error:
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None
                errors.append(f"group {group.id}: {error}")
                return group
        committed[group.id] = {name: offset.offset for name, offset in offsets.items()}
        return replace(group, state=described.state, members=len(described.members))

    looked = await asyncio.gather(*map(look, window))
    return [group for group in looked if group is not None], len(listed), committed


async def _list_groups(client: Client, broker_id: int) -> list[Group]:
    connection = await client.cluster.broker(broker_id)
    response = await connection.call(ListGroupsRequest(), ListGroupsResponse)
    return [
        Group(group.group_id, group.group_type.capitalize(), group.group_state)
        for group in response.groups
    ]


async def _further_ends(
    client: Client, topics: Sequence[Topic], committed: Mapping[str, Offsets], known: Offsets
) -> Offsets:
    """Return the end offsets of partitions that groups have committed and that nobody asked for."""
    missing = {name for offsets in committed.values() for name in offsets if name not in known}
    leaders = {
        name: partition.leader
        for topic in topics
        for index, partition in enumerate(topic.partitions)
        if (name := TopicPartition(topic.name, index)) in missing and partition.leader >= 0
    }
    return await list_offsets(client.cluster, leaders, LATEST) if leaders else {}


def _with_lag(
    group: Group, committed: Offsets | None, ends: Offsets, counts: Mapping[str, int]
) -> Group:
    """A deleted partition has no lag. If the leader of another one does not answer, the lag of the
    group is unknown. `counts` has the number of partitions of each topic."""
    existing = {
        name: offset
        for name, offset in (committed or {}).items()
        if name.partition < counts.get(name.topic, 0)
    }
    if committed is None or not existing.keys() <= ends.keys():
        return group
    return replace(group, lag=sum(max(ends[name] - at, 0) for name, at in existing.items()))
