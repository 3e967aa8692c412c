"""Why a broker does not do its part: a chain of reasons, from the symptom to the root cause.

Each reason is there only if it was observed. The first one names the broker, the others say "it":
"broker 2 has not fetched for 14 s; its heartbeats stopped at 12:02:58; its last log line was …".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from penstock.health.disks import disk_reasons
from penstock.health.findings import Reason
from penstock.health.history import (
    LONG_LINE,
    is_current,
    last_departure,
    last_event,
    logged,
    recent_events,
    short,
)
from penstock.health.links import (
    FETCH_SILENCE_MS,
    check_controllers,
    cut_between,
    cut_off,
    is_silent,
    slow_answer,
    slow_fetches,
)
from penstock.health.observations import (
    Broker,
    EventKind,
    Node,
    NodeState,
    Observation,
    Partition,
)
from penstock.health.reach import probe_reason
from penstock.health.wording import clock_time, duration, size


def broker_causes(
    seen: Observation, broker_id: int, partition: Partition | None = None
) -> tuple[Reason, ...]:
    """Return why a broker is down, or its replicas are behind; of this partition, if given."""
    broker = seen.brokers.get(broker_id)
    links: list[Reason] = []
    if broker is None:
        removed = last_event(seen, EventKind.UNREGISTERED, str(broker_id))
        words = "{it} is not registered in the cluster"
        if removed is not None:
            at = clock_time(removed.at_ms, seen.now_ms, seen.zone)
            words = f"{{it}} was unregistered at {at} ({removed.words})"
        links.append(
            Reason(
                "broker-unregistered",
                words,
                f"start broker {broker_id}, or move its replicas: penstock brokers drain "
                f"{broker_id}",
            )
        )
    else:
        links += _silence(seen, broker, partition)
        links += _fencing(seen, broker)
    process = _process(seen.nodes.get(broker_id))
    if broker is not None and broker.probe is not None:
        link = probe_reason(broker.probe)
        if link is not None:
            # A process that is known not to run says better what to do than its port.
            links.append(replace(link, todo="") if process else link)
        elif links:
            links += cut_off(seen, broker)
    links += process
    directories = _directories(seen, broker_id, broker, partition)
    links += directories
    if not links:
        links += _slowness(seen, broker_id, partition)
    if broker is not None:
        links += disk_reasons(broker)
    if links and broker_id in seen.nodes and not directories:
        links += _its(last_line(seen, seen.nodes[broker_id]), broker_id)
    return _worded(broker_id, links)


def departed_ms(seen: Observation, partition: Partition, missing: Iterable[int]) -> int | None:
    """Return when the first of the missing replicas left the in-sync replicas, if it was logged."""
    latest_isr = last_event(seen, EventKind.ISR, str(partition.name))
    times = []
    for broker_id in missing:
        broker = seen.brokers.get(broker_id)
        fenced = last_event(seen, EventKind.FENCED, str(broker_id))
        left = last_departure(seen, broker_id, partition)
        if latest_isr is not None and broker_id in latest_isr.numbers:
            times.append(latest_isr.at_ms)
        elif left is not None:
            times.append(left.at_ms)
        elif fenced is not None and (broker is None or broker.fenced):
            times.append(fenced.at_ms)
    return min(times, default=None)


def _silence(seen: Observation, broker: Broker, partition: Partition | None) -> list[Reason]:
    replica = None if partition is None else partition.progress.get(broker.id)
    if partition is not None and replica is not None and replica.leader_fetch_ms is not None:
        silent_ms = seen.now_ms - replica.leader_fetch_ms
        if silent_ms >= FETCH_SILENCE_MS:
            words = f"{{it}} has not fetched from broker {partition.leader}"
            return [Reason("no-fetch", f"{words} for {duration(silent_ms)}")]
    if replica is not None and replica.last_fetch_ms is not None:
        silent_ms = seen.now_ms - replica.last_fetch_ms
        if silent_ms >= FETCH_SILENCE_MS:
            # The leader is another broker's, which the broker does fetch from.
            part = "" if replica.leader_fetch_ms is None else " this partition, but others,"
            words = f"{{it}} has not fetched{part} for {duration(silent_ms)}"
            return [Reason("no-fetch", words)]
    elif is_silent(seen, broker) and broker.last_metadata_fetch_ms is not None:
        silent_ms = seen.quorum_seen_ms - broker.last_metadata_fetch_ms
        words = f"{{it}} has not fetched metadata for {duration(silent_ms)}"
        return [Reason("no-metadata-fetch", words)]
    return []


def _fencing(seen: Observation, broker: Broker) -> list[Reason]:
    if broker.shutting_down:
        return [Reason("shutting-down", "{it} shuts down")]
    heartbeat_ms, links = broker.last_heartbeat_ms, []
    event = last_event(seen, EventKind.FENCED, str(broker.id)) if broker.fenced else None
    if heartbeat_ms is None and event is not None:
        timeout = re.match(r"no heartbeat for ([\d.]+) s", event.words)
        heartbeat_ms = event.at_ms - int(float(timeout[1]) * 1000) if timeout else None
    silent = heartbeat_ms is not None and seen.now_ms - heartbeat_ms >= FETCH_SILENCE_MS
    if heartbeat_ms is not None and (broker.fenced or silent):
        at = clock_time(heartbeat_ms, seen.now_ms, seen.zone)
        links.append(Reason("no-heartbeat", f"{{its}} heartbeats stopped at {at}"))
    if event is not None:
        at = clock_time(event.at_ms, seen.now_ms, seen.zone)
        links.append(Reason("fenced", f"the controller fenced {{it}} at {at}: {event.words}"))
    elif broker.fenced:
        links.append(Reason("fenced", "the controller has fenced {it}"))
    failed = recent_events(seen, EventKind.HEARTBEAT_FAILED, broker.id)
    if links and failed:
        links.append(
            Reason(
                "heartbeat-failed",
                logged(seen, failed[-1]),
                check_controllers(broker.id),
            )
        )
    return links


def _process(node: Node | None) -> list[Reason]:
    if node is None or node.state in (None, NodeState.RUNNING):
        return []
    if node.state is NodeState.PAUSED:
        return [Reason("process-paused", "{its} process is paused (SIGSTOP)", node.resume)]
    return [Reason("process-stopped", "{its} process does not run", node.restart)]


def _directories(
    seen: Observation, broker_id: int, broker: Broker | None, partition: Partition | None
) -> list[Reason]:
    links = []
    todo = f"repair the disk or free space, then restart broker {broker_id}"
    described = {} if broker is None else {each.path: each for each in broker.log_dirs or ()}
    # A broker that has ended does not describe its directories; its log does.
    failed = {
        event.subject: event
        for event in seen.events
        if event.kind is EventKind.DIR_OFFLINE
        and event.node == broker_id
        and broker_id in seen.nodes
        and event.subject not in described
        and is_current(seen, event)
    }
    for path, failure in failed.items():
        words = f"{{its}} log directory {path} is offline: {short(failure.words)}"
        links.append(Reason("log-dir-offline", words, todo))
    for directory in described.values():
        if directory.error:
            event = last_event(seen, EventKind.DIR_OFFLINE, directory.path)
            why = directory.error if event is None else event.words
            links.append(
                Reason(
                    "log-dir-offline",
                    f"{{its}} log directory {directory.path} is offline: {why}",
                    todo,
                )
            )
    if partition is not None:
        for kind in (EventKind.DAMAGED, EventKind.PARTITION_OFFLINE):
            event = last_event(seen, kind, str(partition.name))
            if event is not None and event.node == broker_id and is_current(seen, event):
                links.append(
                    Reason(
                        "log-damaged",
                        f"{{its}} log of {partition.name} is damaged: {short(event.words)}",
                        f"if another replica is in sync, stop broker {broker_id}, remove the "
                        "partition's directory and start it again: it fetches the partition",
                    )
                )
    return links


def _slowness(seen: Observation, broker_id: int, partition: Partition | None) -> list[Reason]:
    links = []
    broker = seen.brokers.get(broker_id)
    for kind in (EventKind.OPEN_FILES, EventKind.BLOCKED):
        recent = recent_events(seen, kind, broker_id)
        if recent:
            links.append(Reason(kind.value, logged(seen, recent[-1])))
    slow = slow_fetches(seen, broker_id)
    if slow:
        latest = max(slow, key=lambda event: event.at_ms)
        node = "{it}" if latest.node == broker_id else f"broker {latest.node}"
        links.append(Reason("slow-fetch", logged(seen, latest, node)))
    if broker is not None:
        links += slow_answer(seen, broker)
    if partition is None:
        return links
    if broker is not None:
        links += cut_between(seen, broker, partition)
    todo = f"check the load, the disk and the network of broker {broker_id}"
    return [Reason("replica-behind", _behind(partition, broker_id), todo), *links]


def _behind(partition: Partition, broker_id: int) -> str:
    own, leader = partition.progress.get(broker_id), partition.progress.get(partition.leader)
    if own is not None and own.lag:
        return f"{{it}} fetches, but is {own.lag:,} offsets behind the leader"
    if (
        own is not None
        and leader is not None
        and own.size is not None
        and leader.size is not None
        and own.size < leader.size
    ):
        return f"{{it}} runs, but has {size(own.size)} of the leader's {size(leader.size)}"
    return "{it} runs, but does not keep up with the leader (replica.lag.time.max.ms)"


def last_line(seen: Observation, node: Node) -> list[Reason]:
    """Return the last words of a process that does not run, which may name the cause. Those of a
    running or paused one do not."""
    if not node.last_log_line or node.state in (NodeState.RUNNING, NodeState.PAUSED):
        return []
    at = ""
    if node.last_log_ms is not None:
        at = f" ({clock_time(node.last_log_ms, seen.now_ms, seen.zone)})"
    line = short(node.last_log_line, LONG_LINE)
    words = f"the last log line of node {node.id} was{at}: {line}"
    return [Reason("last-log-line", words)]


def _its(links: list[Reason], node_id: int) -> list[Reason]:
    """Say "its last log line" in the chain of the node itself."""
    old, new = f"the last log line of node {node_id}", "{its} last log line"
    return [replace(link, words=link.words.replace(old, new, 1)) for link in links]


def _worded(broker_id: int, links: Iterable[Reason]) -> tuple[Reason, ...]:
    """Name the broker in the first reason."""
    name = f"broker {broker_id}"
    reasons: list[Reason] = []
    for link in links:
        it, its = ("it", "its") if reasons else (name, f"{name}'s")
        words = link.words
        if not reasons and "{it}" not in words and "{its}" not in words:
            words = f"{name}: {words}"
        words = words.replace("{it}", it).replace("{its}", its)
        reasons.append(Reason(link.code, words, link.todo))
    return tuple(reasons)
