"""Partitions without a leader or with too few in-sync replicas, and brokers that are down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.health.causes import broker_causes, departed_ms
from penstock.health.findings import Finding, Level, Reason
from penstock.health.history import is_current
from penstock.health.observations import Broker, EventKind, NodeState, Observation, Partition
from penstock.health.wording import brokers, counted

# Brokers whose reasons a chain has; more than these fail together.
_EXPLAINED = 3


def check_partitions(seen: Observation) -> Iterator[Finding]:
    """Return one finding for the partitions that share a state and the brokers at fault."""
    groups: dict[tuple[str, int, int, tuple[int, ...], tuple[int, ...]], list[Partition]] = {}
    for partition in seen.partitions.values():
        state = _state(seen, partition)
        if state is None:
            continue
        required = _min_insync(seen, partition)
        eligible = tuple(sorted({*partition.isr, *partition.elr})) if state == "offline" else ()
        key = (state, len(partition.isr), required, _missing(partition), eligible)
        groups.setdefault(key, []).append(partition)
    for (state, insync, required, missing, eligible), partitions in groups.items():
        if state == "offline":
            yield _offline(seen, partitions, eligible)
        else:
            yield _incomplete(seen, state, insync, required, partitions, missing)
    yield from _damaged(seen)


def check_brokers(seen: Observation) -> Iterator[Finding]:
    for broker in seen.brokers.values():
        if broker.fenced:
            held = sum(broker.id in partition.replicas for partition in seen.partitions.values())
            yield Finding(
                "broker-fenced",
                Level.PROBLEM if held else Level.WARNING,
                (f"broker {broker.id}",),
                "is fenced",
                (
                    Reason("replicas", f"{counted(held, 'replica')} cannot be used"),
                    *broker_causes(seen, broker.id),
                ),
                f"start broker {broker.id}; if it will not return: penstock brokers drain "
                f"{broker.id}, then penstock brokers remove {broker.id}",
                departed_fenced(seen, broker.id),
            )
        for directory in broker.log_dirs or ():
            if directory.error:
                yield Finding(
                    "log-dir-offline",
                    Level.PROBLEM,
                    (f"log directory {directory.path} of broker {broker.id}",),
                    "is offline",
                    broker_causes(seen, broker.id),
                )
    yield from _cordoned(seen)
    yield from _logged_directories(seen)


def _cordoned(seen: Observation) -> Iterator[Finding]:
    """A broker whose online log directories are all cordoned gets no replicas. One that did not
    say so may get some."""
    live = [broker for broker in seen.brokers.values() if not broker.fenced]
    closed = [broker.id for broker in live if _is_cordoned(broker)]
    if closed and len(closed) == len(live):
        yield Finding(
            "no-broker-accepts-replicas",
            Level.PROBLEM,
            ("the cluster",),
            "has no broker that accepts new replicas",
            (
                Reason(
                    "topics",
                    "no topic can be created, nor __consumer_offsets and __transaction_state when "
                    "they are first used",
                ),
                Reason(
                    "cordoned",
                    f"the log directories of {brokers(closed)} are cordoned",
                    f"penstock brokers undrain {' '.join(map(str, closed))}, or set "
                    "cordoned.log.dirs of a broker to fewer of its directories",
                ),
            ),
        )
        return
    if closed:
        yield Finding(
            "broker-cordoned",
            Level.NOTE,
            tuple(f"broker {broker_id}" for broker_id in closed),
            "accepts no new replicas",
            (Reason("cordoned", "the log directories are cordoned"),),
            f"to give replicas again: penstock brokers undrain {' '.join(map(str, closed))}",
        )


def _is_cordoned(broker: Broker) -> bool:
    online = [each for each in broker.log_dirs or () if not each.error]
    return bool(online) and all(each.cordoned for each in online)


def _logged_directories(seen: Observation) -> Iterator[Finding]:
    """Directories that a local node reported as offline and that DescribeLogDirs does not have,
    such as that of the metadata log."""
    latest = {
        (event.node, event.subject): event
        for event in seen.events
        if event.kind is EventKind.DIR_OFFLINE and is_current(seen, event)
    }
    for (node_id, path), event in latest.items():
        node, broker = seen.nodes.get(node_id), seen.brokers.get(node_id)
        listed = () if broker is None else broker.log_dirs or ()
        # Without the time of its start, the line may be older than the process.
        known = node is not None and (node.started_ms or node.state is NodeState.STOPPED)
        if known and path not in {directory.path for directory in listed}:
            yield Finding(
                "log-dir-offline",
                Level.PROBLEM,
                (f"directory {path} of node {node_id}",),
                "is offline",
                (Reason("log-dir-offline", event.words),),
                f"repair the disk or free space, then restart node {node_id}",
                event.at_ms,
            )


def departed_fenced(seen: Observation, broker_id: int) -> int | None:
    times = [
        event.at_ms
        for event in seen.events
        if event.kind is EventKind.FENCED and event.subject == str(broker_id)
    ]
    return times[-1] if times else None


def partition_state(leader: int, in_sync: int, min_insync: int) -> str:
    """Return the state of a partition that has not all its replicas in sync."""
    if leader < 0:
        return "offline"
    if in_sync < min_insync:
        return "under-min-isr"
    return "at-min-isr" if in_sync == min_insync > 1 else "under-replicated"


def _state(seen: Observation, partition: Partition) -> str | None:
    required = _min_insync(seen, partition)
    state = partition_state(partition.leader, len(partition.isr), required)
    wanted = [replica for replica in partition.replicas if replica not in partition.adding]
    if state == "offline" or (state == "under-min-isr" and len(wanted) >= required):
        return state
    if not _missing(partition):
        return None
    return "under-replicated" if state == "under-min-isr" else state


def _missing(partition: Partition) -> tuple[int, ...]:
    """Return the replicas that should be in sync and are not; those of a reassignment under way
    need not be."""
    return tuple(sorted({*partition.replicas} - {*partition.isr} - {*partition.adding}))


def _min_insync(seen: Observation, partition: Partition) -> int:
    topic = seen.topics.get(partition.name.topic)
    return 1 if topic is None or topic.min_insync is None else topic.min_insync


def _offline(
    seen: Observation, partitions: Sequence[Partition], eligible: tuple[int, ...]
) -> Finding:
    first = partitions[0]
    lost = eligible or tuple(sorted(first.replicas))
    reasons = []
    if eligible:
        lost_for_good = "it is" if len(eligible) == 1 else "all of them are"
        reasons.append(
            Reason(
                "no-eligible-leader",
                f"only {brokers(eligible)} had all records, and may lead without losing any",
                f"bring {brokers(eligible)} back. Only if {lost_for_good} lost for good, accept "
                "the loss of records: penstock elect-leaders --unclean --topic "
                f"{first.name.topic} --partition {first.name.partition}",
            )
        )
    for broker_id in lost[:_EXPLAINED]:
        reasons += broker_causes(seen, broker_id, first)
    return Finding(
        "partition-offline",
        Level.PROBLEM,
        _names(partitions),
        "has no leader",
        tuple(reasons),
        since_ms=_since(seen, partitions, lost),
    )


def _incomplete(
    seen: Observation,
    state: str,
    insync: int,
    required: int,
    partitions: Sequence[Partition],
    missing: tuple[int, ...],
) -> Finding:
    first = partitions[0]
    says, reasons = "is under-replicated", []
    if state == "under-min-isr":
        says = f"has {insync} of {required} required in-sync replicas"
        reasons.append(Reason("writes-refused", "writes with acks=all are refused"))
    elif state == "at-min-isr":
        says = f"is under-replicated, at min.insync.replicas ({required})"
        words = "if one more replica fails, writes with acks=all are refused"
        reasons.append(Reason("writes-at-risk", words))
    for broker_id in missing[:_EXPLAINED]:
        reasons += broker_causes(seen, broker_id, first)
    return Finding(
        state,
        Level.PROBLEM,
        _names(partitions),
        says,
        tuple(reasons),
        f"bring {brokers(missing)} back in sync" if missing else "",
        since_ms=_since(seen, partitions, missing),
    )


def _damaged(seen: Observation) -> Iterator[Finding]:
    """Logs that a node reported as damaged, of partitions that are otherwise in sync. Lines about
    replicas that were deleted or moved since do not count."""
    replicas = {str(name): partition.replicas for name, partition in seen.partitions.items()}
    latest = {
        (event.node, event.subject): event
        for event in seen.events
        if event.kind in (EventKind.DAMAGED, EventKind.PARTITION_OFFLINE)
        and is_current(seen, event)
        and (not replicas or event.node in replicas.get(event.subject, ()))
    }
    for (node, name), event in latest.items():
        yield Finding(
            "log-damaged",
            Level.PROBLEM,
            (f"the log of {name} on broker {node}",),
            "is damaged",
            (Reason("log-damaged", event.words),),
            f"if another replica is in sync, stop broker {node}, remove the partition's directory "
            "and start it again: it fetches the partition",
            event.at_ms,
        )


def _names(partitions: Sequence[Partition]) -> tuple[str, ...]:
    return tuple(str(partition.name) for partition in sorted(partitions, key=lambda p: p.name))


def _since(
    seen: Observation, partitions: Sequence[Partition], missing: Sequence[int]
) -> int | None:
    times = [
        since
        for partition in partitions[:100]
        if (since := departed_ms(seen, partition, missing)) is not None
    ]
    return min(times, default=None)
