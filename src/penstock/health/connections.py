"""Why clients on this machine cannot connect: bootstrap servers and advertised addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.health.causes import broker_causes, last_line
from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Broker, NodeState, Observation, Probe, Reach
from penstock.health.reach import probe_reason

# Failures of the process behind an address. If the broker is fenced, its own finding has them.
_DOWN = (Reach.REFUSED, Reach.TIMED_OUT, Reach.UNREACHABLE, Reach.SILENT, Reach.CLOSED)


def check_connections(seen: Observation) -> Iterator[Finding]:
    yield from _bootstrap(seen)
    for broker in seen.brokers.values():
        yield from _advertised(seen, broker)
    yield from _versions(seen)


def _bootstrap(seen: Observation) -> Iterator[Finding]:
    if seen.bootstrap_error:
        yield Finding(
            "bootstrap-invalid",
            Level.PROBLEM,
            ("the list of bootstrap servers",),
            "is not valid",
            (Reason("bootstrap-invalid", seen.bootstrap_error),),
            "give host:port, separated by commas",
        )
    failed = [probe for probe in seen.bootstrap if probe.reach is not Reach.KAFKA]
    # One bootstrap server that answers is enough for a client.
    level = Level.PROBLEM if len(failed) == len(seen.bootstrap) else Level.WARNING
    advertised = {
        (broker.host, broker.port) for broker in seen.brokers.values() if broker.probe is not None
    }
    groups: dict[tuple[Reach, str, str], list[Probe]] = {}
    for probe in failed:
        if (probe.host, probe.port) not in advertised:
            groups.setdefault((probe.reach, probe.detail, _subject(probe)), []).append(probe)
    for probes in groups.values():
        first = probes[0]
        reason = probe_reason(first, "" if len(probes) == 1 else "each of them")
        if reason is not None:
            local = _local_process(seen, first)
            yield Finding(
                f"bootstrap-{first.reach.value}",
                level,
                tuple(f"bootstrap server {probe.address}" for probe in probes),
                "cannot be used",
                (replace(reason, todo="") if local else reason, *local),
            )
    clusters = {probe.cluster_id: probe for probe in seen.bootstrap if probe.cluster_id}
    if len(clusters) > 1:
        yield Finding(
            "bootstrap-two-clusters",
            Level.PROBLEM,
            tuple(f"bootstrap server {probe.address}" for probe in clusters.values()),
            "belongs to another cluster than the others",
            (),
            "list the servers of one cluster only",
        )


def _subject(probe: Probe) -> str:
    """Names that do not resolve have their own words, each."""
    return probe.host if probe.reach in (Reach.UNKNOWN_HOST, Reach.NAME_SERVER) else ""


def _local_process(seen: Observation, probe: Probe) -> list[Reason]:
    """All processes of a local cluster that do not run explain a refused port."""
    stopped = [node for node in seen.nodes.values() if node.state is NodeState.STOPPED]
    if probe.reach is not Reach.REFUSED or not seen.nodes or len(stopped) < len(seen.nodes):
        return []
    reason = Reason(
        "process-stopped", "no node of this cluster's directory runs", stopped[0].restart
    )
    return [reason, *last_line(seen, stopped[0])]


def _advertised(seen: Observation, broker: Broker) -> Iterator[Finding]:
    probe = broker.probe
    if probe is None or (broker.fenced and probe.reach in _DOWN):
        return
    reason = probe_reason(probe)
    if reason is None:
        if probe.cluster_id and seen.cluster_id and probe.cluster_id != seen.cluster_id:
            yield Finding(
                "advertised-other-cluster",
                Level.PROBLEM,
                (f"broker {broker.id}",),
                f"advertises {probe.address}, which belongs to another cluster",
                (
                    Reason(
                        "advertised-other-cluster",
                        f"the cluster there is {probe.cluster_id}, not {seen.cluster_id}",
                    ),
                ),
                "correct advertised.listeners of that broker",
            )
        return
    process = seen.nodes.get(broker.id)
    not_running = process is not None and process.state not in (None, NodeState.RUNNING)
    if not_running:
        yield Finding(
            f"broker-{reason.code}",
            Level.PROBLEM,
            (f"broker {broker.id}",),
            "is not reachable, and not fenced yet",
            broker_causes(seen, broker.id),
        )
        return
    reasons = [reason]
    if loopback := _is_loopback(probe) and not all(map(_is_loopback, seen.bootstrap)):
        reasons.append(
            Reason(
                "advertised-loopback",
                f"{probe.host} is this machine itself, not the broker's: the broker advertises a "
                "loopback address",
            )
        )
    silent = probe.reach in (Reach.SILENT, Reach.CLOSED) and not loopback
    yield Finding(
        f"advertised-{reason.code}",
        Level.PROBLEM,
        (f"broker {broker.id}",),
        f"advertises {probe.address}, which clients on this machine cannot use",
        tuple(reasons),
        ""
        if silent
        else "set advertised.listeners of that broker to an address that clients reach: clients "
        "use the bootstrap servers only for their first request",
    )


def _is_loopback(probe: Probe) -> bool:
    return probe.host == "localhost" or any(
        address.startswith("127.") or address == "::1" for address in (probe.host, *probe.addresses)
    )


def _versions(seen: Observation) -> Iterator[Finding]:
    """Brokers that support other API versions than the others."""
    by_versions: dict[tuple[tuple[str, tuple[int, int]], ...], list[int]] = {}
    for broker in seen.brokers.values():
        if broker.probe is not None and broker.probe.versions:
            key = tuple(sorted(broker.probe.versions.items()))
            by_versions.setdefault(key, []).append(broker.id)
    if len(by_versions) > 1:
        few = min(by_versions.values(), key=len)
        yield Finding(
            "mixed-versions",
            Level.NOTE,
            tuple(f"broker {broker_id}" for broker_id in few),
            "supports other API versions than the other brokers",
            (),
            "complete the rolling upgrade",
        )
