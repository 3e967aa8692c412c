"""The controller quorum: its leader, its majority, and voters and brokers that are behind."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.causes import broker_causes, last_line
from penstock.health.findings import Finding, Level, Reason
from penstock.health.links import FETCH_SILENCE_MS, cut_off
from penstock.health.observations import NodeState, Observation, Quorum, QuorumReplica
from penstock.health.wording import clock_time, duration

# A broker that has not applied the newest metadata for this time serves stale leaders.
_METADATA_STALE_MS = 10_000


def check_quorum(seen: Observation) -> Iterator[Finding]:
    quorum = seen.quorum
    if quorum is None:
        return
    if quorum.error or quorum.leader < 0:
        yield _no_leader(seen, quorum)
        return
    silent = [voter for voter in quorum.voters if _is_silent(seen, quorum, voter)]
    alive = len(quorum.voters) - len(silent)
    spare = alive - (len(quorum.voters) // 2 + 1)
    for voter in silent:
        broker = seen.brokers.get(voter.id)
        process = _process(seen, voter.id) or ([] if broker is None else cut_off(seen, broker))
        yield Finding(
            "voter-silent",
            Level.PROBLEM,
            (f"controller {voter.id}",),
            "does not take part in the quorum",
            (*_last_fetch(seen, voter), *process, _margin(quorum, alive, spare)),
            "" if process else f"start controller {voter.id}",
        )
    for voter in quorum.voters:
        if voter not in silent and _is_behind(seen, quorum, voter):
            yield Finding(
                "voter-behind",
                Level.WARNING,
                (f"controller {voter.id}",),
                "is behind the quorum's leader",
                (Reason("voter-behind", _behind(seen, quorum, voter)),),
                f"check the disk and the network of controller {voter.id}",
            )
    for observer in quorum.observers:
        broker = seen.brokers.get(observer.id)
        if broker is None or broker.fenced or not _is_behind(seen, quorum, observer):
            continue
        yield Finding(
            "metadata-behind",
            Level.WARNING,
            (f"broker {observer.id}",),
            "does not have the newest metadata",
            (
                Reason("metadata-behind", _behind(seen, quorum, observer)),
                *broker_causes(seen, observer.id),
            ),
        )
    if len(quorum.voters) % 2 == 0:
        yield Finding(
            "even-voters",
            Level.NOTE,
            ("the quorum",),
            f"has {len(quorum.voters)} voters, which tolerate no more failures than "
            f"{len(quorum.voters) - 1}",
            (),
            "add or remove a voter: penstock quorum add, penstock quorum remove",
        )
    elif len(quorum.voters) == 1 and len(seen.brokers) > 1:
        yield Finding(
            "single-voter",
            Level.WARNING,
            ("the quorum",),
            "has one voter: without it the cluster elects no leaders and creates no topics",
            (),
            "run three controllers: penstock quorum add",
        )


def _no_leader(seen: Observation, quorum: Quorum) -> Finding:
    stopped = [
        node
        for node in seen.nodes.values()
        if "controller" in node.roles and node.state in (NodeState.STOPPED, NodeState.PAUSED)
    ]
    controllers = [node for node in seen.nodes.values() if "controller" in node.roles]
    reasons = [Reason("quorum-no-leader", quorum.error)] if quorum.error else []
    if stopped:
        reasons.append(
            Reason(
                "controllers-down",
                f"{len(stopped)} of {len(controllers)} controllers do not run: a majority is "
                f"{len(controllers) // 2 + 1}",
            )
        )
        for node in stopped[:3]:
            reasons += _process(seen, node.id)
    else:
        for broker in seen.brokers.values():
            reasons += broker_causes(seen, broker.id) if broker.fenced else ()
    return Finding(
        "quorum-no-leader",
        Level.PROBLEM,
        ("the controller quorum",),
        "has no leader: partitions keep their leaders, but nothing can change",
        tuple(reasons),
        "bring a majority of the controllers back",
    )


def _is_silent(seen: Observation, quorum: Quorum, replica: QuorumReplica) -> bool:
    """Return True for a voter that does not fetch. The leader does not fetch from itself."""
    if replica.id == quorum.leader:
        return False
    if replica.last_fetch_ms is None:
        return replica.log_end_offset < 0
    return seen.quorum_seen_ms - replica.last_fetch_ms >= FETCH_SILENCE_MS


def _is_behind(seen: Observation, quorum: Quorum, replica: QuorumReplica) -> bool:
    caught_up = replica.last_caught_up_ms
    return (
        _behind_by(quorum, replica) > 0
        and caught_up is not None
        and seen.quorum_seen_ms - caught_up >= _METADATA_STALE_MS
    )


def _behind_by(quorum: Quorum, replica: QuorumReplica) -> int:
    ends = [voter.log_end_offset for voter in quorum.voters if voter.id == quorum.leader]
    return max(ends, default=replica.log_end_offset) - replica.log_end_offset


def _behind(seen: Observation, quorum: Quorum, replica: QuorumReplica) -> str:
    since = replica.last_caught_up_ms or seen.now_ms
    return (
        f"it is {_behind_by(quorum, replica):,} metadata records behind, and had all of them last "
        f"at {clock_time(since, seen.now_ms, seen.zone)}"
    )


def _last_fetch(seen: Observation, voter: QuorumReplica) -> list[Reason]:
    if voter.last_fetch_ms is None:
        words = "it has not fetched from the leader since that was elected"
        return [Reason("no-metadata-fetch", words)]
    silence = duration(seen.quorum_seen_ms - voter.last_fetch_ms)
    return [Reason("no-metadata-fetch", f"it has not fetched from the leader for {silence}")]


def _margin(quorum: Quorum, alive: int, spare: int) -> Reason:
    if spare > 0:
        left = f"{spare} more may fail"
    else:
        left = "fewer than a majority" if spare else "if one more fails, the quorum stops"
    return Reason("quorum-margin", f"{alive} of {len(quorum.voters)} voters are left: {left}")


def _process(seen: Observation, node_id: int) -> list[Reason]:
    node = seen.nodes.get(node_id)
    if node is None or node.state in (None, NodeState.RUNNING):
        return []
    verb = "is paused" if node.state is NodeState.PAUSED else "does not run"
    todo = node.resume if node.state is NodeState.PAUSED else node.restart
    words = f"the process of node {node_id} {verb}"
    return [Reason(f"process-{node.state.value}", words, todo), *last_line(seen, node)]
