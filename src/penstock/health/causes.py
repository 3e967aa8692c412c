"""Why a broker does not do its part: a chain of reasons, from the symptom to the root cause.

Each reason is there only if it was observed. The first one names the broker, the others say "it":
"broker 2 has not fetched for 14 s; its heartbeats stopped at 12:02:58; its last log line was …".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from penstock.health.findings import Reason
from penstock.health.observations import (
    Broker,
    Event,
    EventKind,
    Node,
    NodeState,
    Observation,
    Partition,
    Probe,
    Reach,
)
from penstock.health.wording import clock_time, duration, size

# A live broker or voter fetches the metadata log at least every 500 ms. This leaves room for a busy
# machine, and is below broker.session.timeout.ms.
FETCH_SILENCE_MS = 5_000
# Older events of a running node do not explain what is seen now.
RECENT_MS = 600_000
_LINE_LENGTH = 160

# What each result of a probe says about an address, and what to do.
REACHED: dict[Reach, tuple[str, str]] = {
    Reach.UNKNOWN_HOST: (
        "the host name {host} does not exist",
        "correct the host name, or add it to DNS or to the hosts file of this machine",
    ),
    Reach.NAME_SERVER: (
        "the name server did not resolve {host}: {detail}",
        "check the name servers of this machine",
    ),
    Reach.REFUSED: (
        "{address} refuses connections",
        "start the broker, or correct the port: no process listens there",
    ),
    Reach.TIMED_OUT: (
        "{address} does not answer",
        "check firewalls and security groups, and that the machine runs",
    ),
    Reach.UNREACHABLE: (
        "{address} is not reachable: {detail}",
        "check the network and the routes of this machine",
    ),
    Reach.SILENT: (
        "{address} accepts connections and answers nothing",
        "check whether the process is paused or overloaded, and that it is a Kafka broker",
    ),
    Reach.CLOSED: (
        "{address} closes connections before it answers",
        "check that this is a plaintext listener of a broker, and the broker's limits of "
        "connections",
    ),
    Reach.HTTP: (
        "{address} speaks HTTP, not Kafka's protocol",
        "use the port of a broker's listener; this is a web server, a REST proxy or a console",
    ),
    Reach.TLS: (
        "{address} speaks TLS",
        "set security.protocol=SSL or SASL_SSL in the client, or use a plaintext listener",
    ),
    Reach.OTHER_PROTOCOL: (
        "{address} does not speak Kafka's protocol: {detail}",
        "use the port of a broker's listener",
    ),
    Reach.AUTHENTICATION: (
        "{address} closes the connection after ApiVersions",
        "the listener asks for authentication: set security.protocol and sasl.mechanism in the "
        "client",
    ),
    Reach.CONTROLLER: (
        "{address} is the listener of a controller",
        "use the port of a broker's listener (listeners, without those in "
        "controller.listener.names)",
    ),
    Reach.VERSION: (
        "{address} supports no version in common: {detail}",
        "upgrade the older of client and broker",
    ),
}


def probe_reason(probe: Probe, address: str = "") -> Reason | None:
    """Return why clients on this machine cannot use an address, or None if they can. `address`
    stands for the address in the words, if given."""
    if probe.reach is Reach.KAFKA:
        return None
    words, todo = REACHED[probe.reach]
    fields = {"host": probe.host, "address": address or probe.address, "detail": probe.detail}
    return Reason(probe.reach.value, words.format(**fields), todo)


def broker_causes(
    seen: Observation, broker_id: int, partition: Partition | None = None
) -> tuple[Reason, ...]:
    """Return why a broker is down, or its replicas are behind; of this partition, if given."""
    broker = seen.brokers.get(broker_id)
    links: list[Reason] = []
    if broker is None:
        links.append(
            Reason(
                "broker-unregistered",
                "{it} is not registered in the cluster",
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
    links += process
    links += _directories(seen, broker_id, broker, partition)
    if not links:
        links += _slowness(seen, broker_id, partition)
    if links and broker_id in seen.nodes:
        links += _its(last_line(seen, seen.nodes[broker_id]), broker_id)
    return _worded(broker_id, links)


def departed_ms(seen: Observation, partition: Partition, missing: Iterable[int]) -> int | None:
    """Return when the first of the missing replicas left the in-sync replicas, if it was logged."""
    latest_isr = last_event(seen, EventKind.ISR, str(partition.name))
    times = []
    for broker_id in missing:
        broker = seen.brokers.get(broker_id)
        fenced = last_event(seen, EventKind.FENCED, str(broker_id))
        if latest_isr is not None and broker_id in latest_isr.numbers:
            times.append(latest_isr.at_ms)
        elif fenced is not None and (broker is None or broker.fenced):
            times.append(fenced.at_ms)
    return min(times, default=None)


def last_event(seen: Observation, kind: EventKind, subject: str) -> Event | None:
    for event in reversed(seen.events):
        if event.kind is kind and event.subject == subject:
            return event
    return None


def _silence(seen: Observation, broker: Broker, partition: Partition | None) -> list[Reason]:
    replica = None if partition is None else partition.progress.get(broker.id)
    if replica is not None and replica.last_fetch_ms is not None:
        silent_ms = seen.now_ms - replica.last_fetch_ms
        if silent_ms >= FETCH_SILENCE_MS:
            words = f"{{it}} has not fetched for {duration(silent_ms)}"
            return [Reason("no-fetch", words)]
    elif broker.last_metadata_fetch_ms is not None:
        silent_ms = seen.quorum_seen_ms - broker.last_metadata_fetch_ms
        if silent_ms >= FETCH_SILENCE_MS:
            words = f"{{it}} has not fetched metadata for {duration(silent_ms)}"
            return [Reason("no-metadata-fetch", words)]
    return []


def _fencing(seen: Observation, broker: Broker) -> list[Reason]:
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
                _logged(seen, failed[-1]),
                f"check the network between broker {broker.id} and the controllers, in both "
                "directions",
            )
        )
    return links


def recent_events(seen: Observation, kind: EventKind, node: int) -> list[Event]:
    """Return what a node logged in the last minutes, and since its start."""
    return [
        event
        for event in seen.events
        if event.kind is kind
        and event.node == node
        and seen.now_ms - event.at_ms < RECENT_MS
        and is_current(seen, event)
    ]


def _logged(seen: Observation, event: Event) -> str:
    at = clock_time(event.at_ms, seen.now_ms, seen.zone)
    return f"{{it}} logged at {at}: {_short(event.words)}"


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
    for directory in () if broker is None else broker.log_dirs or ():
        if directory.error:
            event = last_event(seen, EventKind.DIR_OFFLINE, directory.path)
            why = directory.error if event is None else event.words
            links.append(
                Reason(
                    "log-dir-offline",
                    f"{{its}} log directory {directory.path} is offline: {why}",
                    f"repair the disk or free space, then restart broker {broker_id}",
                )
            )
    if partition is not None:
        for kind in (EventKind.DAMAGED, EventKind.PARTITION_OFFLINE):
            event = last_event(seen, kind, str(partition.name))
            if event is not None and event.node == broker_id and is_current(seen, event):
                links.append(
                    Reason(
                        "log-damaged",
                        f"{{its}} log of {partition.name} is damaged: {_short(event.words)}",
                        f"if another replica is in sync, stop broker {broker_id}, remove the "
                        "partition's directory and start it again: it fetches the partition",
                    )
                )
    return links


def is_current(seen: Observation, event: Event) -> bool:
    """Return False for what a node logged before its last start, where that is known."""
    node = seen.nodes.get(event.node)
    return node is None or node.started_ms is None or event.at_ms >= node.started_ms


def _slowness(seen: Observation, broker_id: int, partition: Partition | None) -> list[Reason]:
    links = []
    for kind in (EventKind.OPEN_FILES, EventKind.BLOCKED, EventKind.SLOW_FETCH):
        recent = recent_events(seen, kind, broker_id)
        if recent:
            links.append(Reason(kind.value, _logged(seen, recent[-1])))
    if partition is None:
        return links
    todo = f"check the load, the disk and the network of broker {broker_id}"
    words = "{it} runs, but does not keep up with the leader (replica.lag.time.max.ms)"
    own, leader = partition.progress.get(broker_id), partition.progress.get(partition.leader)
    if own is not None and leader is not None and own.size is not None and leader.size:
        words = (
            f"{{it}} runs, but has {size(own.size)} of the leader's {size(leader.size)}"
            if own.size < leader.size
            else words
        )
    return [Reason("replica-behind", words, todo), *links]


def last_line(seen: Observation, node: Node) -> list[Reason]:
    """Return the last words of a process that does not run, which may name the cause. Those of a
    running or paused one do not."""
    if not node.last_log_line or node.state in (NodeState.RUNNING, NodeState.PAUSED):
        return []
    at = ""
    if node.last_log_ms is not None:
        at = f" ({clock_time(node.last_log_ms, seen.now_ms, seen.zone)})"
    words = f"the last log line of node {node.id} was{at}: {_short(node.last_log_line)}"
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


def _short(text: str) -> str:
    """Limit the words of a log line."""
    return text if len(text) <= _LINE_LENGTH else f"{text[: _LINE_LENGTH - 1]}…"
