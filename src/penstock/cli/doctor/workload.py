"""Looks at what moves in a cluster: offsets, consumer groups, transactions and Spark queries.

Doctor reads all offsets twice, `over_s` apart. The difference shows what progresses, what stands
still and which lag grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cli.doctor import requests
from penstock.cli.doctor.checkpoints import Checkpoint, NoCheckpoint, read_checkpoints
from penstock.cli.doctor.groups import (
    MAX_GROUPS,
    GroupLook,
    list_consumer_groups,
    look_at_group,
    read_unread_ages,
)
from penstock.cli.doctor.notes import LOOK_S, Notes, new_client
from penstock.cli.doctor.transactions import find_hanging, look_at_transactions
from penstock.client.client import Client
from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel
from penstock.health.groups import LONG_REBALANCE_MS
from penstock.health.observations import GroupOffset, Offsets, SparkQuery
from penstock.ids import TopicPartition
from penstock.world import World

# The time between two looks. For a group or a query it spans two commits of a consumer with
# Kafka's defaults (auto.commit.interval.ms is 5 s).
OVER_S = 2.0
OVER_NAMED_S = 10.0
# Partitions whose offsets are read: five requests of each take a second.
_MAX_PARTITIONS = 20_000
_GROUPS_IN_FLIGHT = 8
# A rate over a shorter time is noise.
_SHORTEST_RATE_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user names, and the time between two looks."""

    group: str | None
    transactional_id: str | None
    checkpoint: Path | None
    over_s: float | None


async def look_at_workload(
    world: World, bootstrap: str, client: Client, wanted: Wanted, notes: Notes
) -> None:
    over_s = wanted.over_s
    if over_s is None:
        over_s = OVER_NAMED_S if wanted.group or wanted.checkpoint else OVER_S
    leaders = dict(list(notes.live_leaders().items())[:_MAX_PARTITIONS])
    groups: list[GroupLook] = []
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}

    async def look_at_starts() -> None:
        starts.update(await requests.list_offsets(client.cluster, leaders, EARLIEST))

    async def look_at_groups() -> None:
        slots = asyncio.Semaphore(_GROUPS_IN_FLIGHT)
        async with new_client(world, bootstrap) as group_client:
            names = [wanted.group] if wanted.group else await list_consumer_groups(client, notes)
            notes.group_count = len(names)
            looks = [GroupLook(name, name == wanted.group) for name in names[:MAX_GROUPS]]
            await asyncio.gather(
                *(look_at_group(group_client, look, over_s, slots) for look in looks)
            )
        # A group may have been deleted since it was listed.
        groups.extend(look for look in looks if look.exists or look.named)

    async def look_at_offsets() -> None:
        committed, clock = IsolationLevel.READ_COMMITTED, world.clock
        stable_before = await requests.list_offsets(client.cluster, leaders, LATEST, committed)
        ends.update(await requests.list_offsets(client.cluster, leaders, LATEST))
        before_s = clock.monotonic()
        await asyncio.sleep(over_s)
        after = await requests.list_offsets(client.cluster, leaders, LATEST)
        elapsed_s = clock.monotonic() - before_s
        stable = await requests.list_offsets(client.cluster, leaders, LATEST, committed)
        for name, end in after.items():
            grown = end - ends.get(name, end)
            rate = grown / elapsed_s if elapsed_s >= _SHORTEST_RATE_S else 0.0
            last_stable = min(stable.get(name, end), end)
            notes.offsets[name] = Offsets(starts.get(name, 0), end, last_stable, rate)
            if last_stable == stable_before.get(name) and last_stable < end:
                notes.held.append(name)

    # The start of a log is read before the offsets that groups have committed, and its end after
    # them: a group that reads, and an application that deletes what it has read, move both.
    await notes.look("the starts of logs", look_at_starts())
    await asyncio.gather(
        notes.look("consumer groups", look_at_groups(), over_s + LONG_REBALANCE_MS / 1000 + LOOK_S),
        notes.look("offsets", look_at_offsets(), over_s + LOOK_S),
        notes.look(
            "transactions",
            look_at_transactions(world, bootstrap, wanted.transactional_id, over_s, notes),
            over_s + 2 * LOOK_S,
        ),
    )
    _add_rates(notes)
    await notes.look("hanging transactions", find_hanging(world, bootstrap, notes))
    checkpoints = _checkpoints(wanted)
    read = {name for group in groups for name in group.committed}
    read |= {name for checkpoint in checkpoints for name in checkpoint.offsets}
    await notes.look("the ends of logs", _renew_ends(client, notes, read & leaders.keys()))
    for look in groups:
        if look.named and look.members:
            ages = read_unread_ages(client, look, notes)
            await notes.look(f"the unread records of group {look.id}", ages)
    notes.groups = [look.group(_group_offsets(look, notes, ends), notes) for look in groups]
    notes.queries = [_query(checkpoint, notes) for checkpoint in checkpoints]


def _checkpoints(wanted: Wanted) -> list[Checkpoint]:
    """Return the checkpoints as they are now. That there are none is noted before."""
    try:
        return [] if wanted.checkpoint is None else read_checkpoints(wanted.checkpoint)
    except NoCheckpoint:
        return []


def _add_rates(notes: Notes) -> None:
    rates: dict[str, float] = {}
    for name, offsets in notes.offsets.items():
        rates[name.topic] = rates.get(name.topic, 0.0) + offsets.rate
    for topic, rate in rates.items():
        if topic in notes.topics:
            notes.topics[topic] = replace(notes.topics[topic], rate=rate)


async def _renew_ends(client: Client, notes: Notes, names: set[TopicPartition]) -> None:
    leaders = {name: notes.partitions[name].leader for name in names if name in notes.offsets}
    for name, end in (await requests.list_offsets(client.cluster, leaders, LATEST)).items():
        notes.offsets[name] = replace(notes.offsets[name], end=end)


def _group_offsets(
    look: GroupLook, notes: Notes, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, GroupOffset]:
    """Return the offsets of a group. Partitions whose leader does not answer are left out: nothing
    is known of them."""
    return {
        name: GroupOffset(
            committed,
            look.committed_before.get(name),
            notes.offsets.get(name),
            ends.get(name),
            look.unread_age_ms.get(name),
        )
        for name, committed in look.committed.items()
        if name in notes.offsets or not _exists(notes, name)
    }


def _exists(notes: Notes, name: TopicPartition) -> bool:
    """Partitions of topics that doctor does not look at count as existing."""
    return name in notes.partitions or not notes.all_topics or not notes.topics


def _query(checkpoint: Checkpoint, notes: Notes) -> SparkQuery:
    offsets = {
        name: offset
        for name, offset in checkpoint.offsets.items()
        if name in notes.offsets or not _exists(notes, name)
    }
    return SparkQuery(
        checkpoint.name,
        checkpoint.committed_batch,
        checkpoint.planned_batch,
        checkpoint.committed_ms,
        checkpoint.planned_ms,
        checkpoint.rate,
        checkpoint.batch_ms,
        offsets,
        {name: notes.offsets[name] for name in offsets if name in notes.offsets},
    )
