"""Gathers an observation of a cluster before a deadline: what is there, and how it is set up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from penstock.cli.cluster.directory import DirectoryError
from penstock.cli.doctor import requests
from penstock.cli.doctor.checkpoints import NoCheckpoint, read_checkpoints
from penstock.cli.doctor.local import read_cluster
from penstock.cli.doctor.notes import REQUEST_S, Notes, is_denied, is_reached, new_client
from penstock.cli.doctor.pages import NoPage, local_addresses, read_page
from penstock.cli.doctor.probe import probe
from penstock.cli.doctor.workload import Wanted, look_at_workload
from penstock.client.admin.quorum import QuorumReplica as DescribedReplica
from penstock.client.bootstrap import parse_bootstrap
from penstock.client.client import Client
from penstock.client.metadata import TopicInfo
from penstock.client.security import tls_context
from penstock.errors import ErrorCode, KafkaError
from penstock.health.observations import (
    Broker,
    Observation,
    Partition,
    Probe,
    Quorum,
    QuorumReplica,
    Reach,
    Replica,
    Topic,
    Unseen,
)
from penstock.ids import TopicPartition
from penstock.limits import MAX_DESCRIBED_PARTITIONS
from penstock.world import World

# Bootstrap servers and brokers that are probed.
MAX_PROBED = 100
# A probe resolves a name, connects, and asks; each may take this long.
PROBE_S = 3.0
# An election takes less than this.
_ELECTED_S = 2.0
_QUORUM_S = 6.0
# The pages of metrics are read twice in this time, unless the user gives another.
PAGES_OVER_S = 2.0
# Replicas that are not in sync, whose sizes are compared with their leaders'.
_MAX_SIZED = 1_000
# A slower answer says too little about the clock of the node that answers.
_CLOCK_ROUND_TRIP_MS = 1_000


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for."""

    bootstrap: str
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    checkpoint: Path | None = None
    directory: Path | None = None
    over_s: float | None = None
    deadline_s: float = 20.0
    # Where nodes serve their metrics, as host:port, and the token that they ask for.
    metrics: tuple[str, ...] = ()
    metrics_token: str | None = field(default=None, repr=False)
    # The settings of the client.
    security: Mapping[str, str] = field(default_factory=dict, repr=False)


async def gather(world: World, request: Request) -> Observation:
    """Return what can be seen before the deadline; `unseen` has what cannot."""
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None
    notes = Notes(zone)
    try:
        async with asyncio.timeout(request.deadline_s):
            await _look(world, request, notes)
    except TimeoutError:
        reason = f"the deadline of {request.deadline_s:g} s was reached (--timeout)"
        notes.unseen.append(Unseen("the rest of the cluster", reason))
    # After the rest: what the logs have by now explains what was seen.
    _look_locally(request, notes)
    return notes.observation(world.clock.now_ms())


async def _look(world: World, request: Request, notes: Notes) -> None:
    try:
        addresses = parse_bootstrap(request.bootstrap)
    except ValueError as error:
        notes.bootstrap_error = str(error)
        return
    notes.bootstrap = tuple(
        await asyncio.gather(
            *(probe(world, host, port, PROBE_S) for host, port in addresses[:MAX_PROBED])
        )
    )
    reached = _newest(notes.bootstrap)
    if reached is None:
        return
    look = _brokers(world, reached, notes)
    await notes.look("the brokers", look, 2 * (3 * PROBE_S + REQUEST_S))
    probes = (each.probe for each in notes.brokers.values() if each.probe is not None)
    newest = _newest_like(reached, probes)
    async with asyncio.TaskGroup() as group:
        group.create_task(_pages(world, request, notes))
        # Both may wait for a controller, and have connections of their own.
        group.create_task(notes.look("the quorum", _quorum(world, newest.address, notes)))
        group.create_task(_cluster(world, newest.address, request, notes))


async def _pages(world: World, request: Request, notes: Notes) -> None:
    """Read the pages of metrics that the user names, and those of the local nodes that run; twice,
    to see what the disks do now."""
    local = {} if request.directory is None else local_addresses(request.directory)
    # The user's token is for the nodes that the user names only.
    named = {each: request.metrics_token or local.get(each) for each in request.metrics}
    tokens = named | {each: token for each, token in local.items() if each not in named}
    over_s = PAGES_OVER_S if request.over_s is None else request.over_s
    tls = tls_context(request.security) if any(map(_has_tls, tokens)) else None

    async def read(address: str, token: str | None) -> None:
        try:
            page = await read_page(world, address, token, tls)
        except NoPage as error:
            if address in request.metrics:
                notes.unseen.append(Unseen("a page of metrics", str(error)))
            return
        notes.pages[page.node_id] = page
        if over_s:
            await asyncio.sleep(over_s)
            with suppress(NoPage):
                notes.pages[page.node_id] = (await read_page(world, address, token, tls)).after(
                    page
                )

    some = list(tokens.items())[:MAX_PROBED]
    await asyncio.gather(*(read(address, token) for address, token in some))


def _has_tls(address: str) -> bool:
    return address.lower().startswith("https://")


def _newest(probes: Iterable[Probe]) -> Probe | None:
    """Return the broker with the newest metadata: one that the controllers do not reach describes
    the cluster as it was."""
    return max(
        (each for each in probes if each.reach is Reach.KAFKA),
        key=lambda each: each.metadata_offset or -1,
        default=None,
    )


def _newest_like(asked: Probe, probes: Iterable[Probe]) -> Probe:
    """Return the broker with the newest metadata of the same cluster."""
    others = (each for each in probes if each.cluster_id == asked.cluster_id)
    return _newest((asked, *others)) or asked


def _look_locally(request: Request, notes: Notes) -> None:
    if request.directory is not None:
        try:
            local = read_cluster(request.directory, notes.zone)
        except (DirectoryError, OSError) as error:
            notes.unseen.append(Unseen(f"directory {request.directory}", str(error)))
        else:
            notes.nodes, notes.events = local.nodes, local.events
    if request.checkpoint is not None:
        try:
            read_checkpoints(request.checkpoint)
        except NoCheckpoint as error:
            notes.unseen.append(Unseen(f"checkpoint {request.checkpoint}", str(error)))


async def _quorum(world: World, bootstrap: str, notes: Notes) -> None:
    clock = world.clock
    try:
        async with asyncio.timeout(_QUORUM_S), new_client(world, bootstrap) as client:
            asked_ms = clock.now_ms()
            found = await client.admin.describe_quorum()
            if any(voter.log_end_offset < 0 for voter in found.voters):
                # Not heard of since the leader was elected, which may be a moment ago.
                await asyncio.sleep(_ELECTED_S)
                asked_ms = clock.now_ms()
                found = await client.admin.describe_quorum()
    except TimeoutError:
        notes.quorum = Quorum(error=f"no active controller answered within {_QUORUM_S:g} s")
        return
    except KafkaError as error:
        if is_denied(error):
            raise
        notes.quorum = Quorum(error=error.message)
        return
    answered_ms = clock.now_ms()
    leader_ms = next(
        (voter.last_fetch_ms for voter in found.voters if voter.id == found.leader_id), -1
    )
    ahead_ms = None
    if leader_ms > 0 and answered_ms - asked_ms < _CLOCK_ROUND_TRIP_MS:
        ahead_ms = leader_ms - (asked_ms + answered_ms) // 2

    def on_our_clock(replica: DescribedReplica) -> QuorumReplica:
        """The leader's times are on its own clock."""
        fetch, caught_up = (
            time_ms - (ahead_ms or 0) if time_ms > 0 else None
            for time_ms in (replica.last_fetch_ms, replica.last_caught_up_ms)
        )
        return QuorumReplica(replica.id, replica.log_end_offset, fetch, caught_up)

    notes.quorum = Quorum(
        found.leader_id,
        found.leader_epoch,
        tuple(map(on_our_clock, found.voters)),
        tuple(map(on_our_clock, found.observers)),
        clock_ahead_ms=ahead_ms,
        seen_ms=answered_ms,
    )


async def _cluster(world: World, bootstrap: str, request: Request, notes: Notes) -> None:
    client = new_client(world, bootstrap)
    wanted = Wanted(request.group, request.transactional_id, request.checkpoint, request.over_s)
    try:
        await notes.look("the cluster", client.cluster.open())
        await notes.look("the topics", _topics(client, request.topic, notes))
        await asyncio.gather(
            notes.look("reassignments", _reassignments(world, bootstrap, notes), REQUEST_S),
            notes.look("the settings of topics", _settings(client, notes)),
            notes.look("the log directories", _log_dirs(client, notes)),
            look_at_workload(world, bootstrap, client, wanted, notes),
        )
    finally:
        client.cluster.close()


async def _brokers(world: World, asked: Probe, notes: Notes) -> None:
    """List the brokers, and probe the addresses that they advertise to clients. If one of them has
    newer metadata, list those that it knows."""
    known = {(each.host, each.port): each for each in notes.bootstrap}

    async def list_by(described_by: Probe) -> None:
        async with new_client(world, described_by.address) as client:
            described = await client.admin.describe_cluster(with_fenced=True)
        notes.cluster_id = described.id
        addresses = [(broker.host, broker.port) for broker in described.brokers[:MAX_PROBED]]
        unknown = [address for address in dict.fromkeys(addresses) if address not in known]
        probes = await asyncio.gather(*(probe(world, *address, PROBE_S) for address in unknown))
        known.update(zip(unknown, probes, strict=True))
        notes.brokers = {
            broker.id: Broker(
                broker.id,
                broker.host,
                broker.port,
                broker.rack,
                broker.fenced,
                known.get((broker.host, broker.port)),
            )
            for broker in described.brokers
        }

    await list_by(asked)
    newest = _newest_like(asked, known.values())
    if newest is not asked:
        await list_by(newest)


async def _topics(client: Client, topic: str | None, notes: Notes) -> None:
    notes.all_topics = topic is None
    try:
        infos = await client.admin.describe_partitions(
            () if topic is None else (topic,), MAX_DESCRIBED_PARTITIONS
        )
    except KafkaError as error:
        if topic is None or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        notes.missing_topics.append(topic)
        return
    for info in infos:
        _add_topic(info, notes)


def _add_topic(info: TopicInfo, notes: Notes) -> None:
    factors = [len(partition.replicas) for partition in info.partitions]
    notes.topics[info.name] = Topic(
        info.name, info.internal, len(info.partitions), min(factors, default=0)
    )
    for partition in info.partitions:
        name = TopicPartition(info.name, partition.index)
        notes.partitions[name] = Partition(
            name,
            partition.leader,
            tuple(partition.replicas),
            tuple(partition.isr),
            tuple(partition.elr or ()),
            tuple(partition.offline),
        )


async def _reassignments(world: World, bootstrap: str, notes: Notes) -> None:
    """Note the replicas that a reassignment adds; they are not in sync yet."""
    if all(len(each.isr) == len(each.replicas) for each in notes.partitions.values()):
        return
    async with new_client(world, bootstrap) as client:
        ongoing = await client.admin.list_partition_reassignments()
    for name, reassignment in ongoing.items():
        if name in notes.partitions:
            adding = tuple(reassignment.adding)
            notes.partitions[name] = replace(notes.partitions[name], adding=adding)


async def _settings(client: Client, notes: Notes) -> None:
    live = [broker.id for broker in notes.brokers.values() if is_reached(broker)]
    if live:
        notes.defaults = await requests.broker_defaults(client.cluster, live[0])
    for name, found in (await requests.topic_settings(client.cluster, list(notes.topics))).items():
        notes.topics[name] = replace(
            notes.topics[name],
            min_insync=found.min_insync,
            unclean_election=found.unclean_election,
            has_own_configs=found.has_own_configs,
        )


async def _log_dirs(client: Client, notes: Notes) -> None:
    """Note the disks, and the sizes of replicas that are not in sync."""
    behind = [
        name for name, each in notes.partitions.items() if len(each.isr) < len(each.replicas)
    ][:_MAX_SIZED]
    sizes: dict[int, dict[TopicPartition, int]] = {}

    async def of_broker(broker: Broker) -> None:
        directories, sizes[broker.id] = await requests.log_dirs(client.cluster, broker.id, behind)
        notes.brokers[broker.id] = replace(notes.brokers[broker.id], log_dirs=directories)

    await asyncio.gather(
        *(
            notes.look(f"the log directories of broker {broker.id}", of_broker(broker), REQUEST_S)
            for broker in list(notes.brokers.values())
            if is_reached(broker) and not broker.fenced
        )
    )
    for name in behind:
        progress = {
            broker_id: Replica(of_replicas[name])
            for broker_id, of_replicas in sizes.items()
            if name in of_replicas
        }
        notes.partitions[name] = replace(notes.partitions[name], progress=progress)
