"""The cause that doctor names in each fire of docs/FIRES.md, from the log lines of that fire and
what the cluster shows meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from penstock.health.examine import examine
from penstock.health.log_lines import read_log
from penstock.health.observations import Event, LogDir, Node, NodeState, Observation, Reach
from tests.health.healthy import (
    NOW_MS,
    PAYMENTS,
    at,
    broker,
    healthy,
    partition,
    probe,
)

TODAY = "2026-11-18 "
# The node that burns; node 1 leads the quorum.
BURNING = 2


def burning(
    *lines: tuple[int, str], state: NodeState = NodeState.RUNNING, **fields: Any
) -> Observation:
    """Return a cluster whose nodes logged these lines."""
    events: list[Event] = []
    nodes = {each: Node(each, NodeState.RUNNING, started_ms=at("08:00:00")) for each in (1, 2, 3)}
    for node in (1, 2, 3):
        text = "".join(f"{line}\n" for owner, line in lines if owner == node)
        log = read_log(node, text, UTC)
        events += log.events
        if node == BURNING:
            nodes[node] = replace(
                nodes[node], state=state, last_log_line=log.last_line, last_log_ms=log.last_ms
            )
    events.sort(key=lambda event: event.at_ms)
    return healthy(nodes=nodes, events=tuple(events), **fields)


def log(node: int, message: str, clock: str = "12:03:00,000") -> tuple[int, str]:
    return node, f"{TODAY}{clock} WARNING [node {node}] penstock.node: {message}"


def fenced(**fields: Any) -> dict[str, Any]:
    """Return a cluster in which the burning broker is fenced."""
    brokers = {each: broker(each) for each in (1, 3)}
    brokers[BURNING] = broker(BURNING, fenced=True, **fields)
    return {"brokers": brokers, "partitions": {PAYMENTS: partition(isr=(1, 3))}}


def offline_directory(path: str) -> dict[str, Any]:
    brokers = {each: broker(each) for each in (1, 3)}
    brokers[BURNING] = broker(BURNING, log_dirs=(LogDir(path, "KAFKA_STORAGE_ERROR"),))
    return {"brokers": brokers, "partitions": {PAYMENTS: partition(isr=(1, 3))}}


NO_HEARTBEAT = log(1, "fencing broker 2: no heartbeat for 6 s (broker.session.timeout.ms)")
ISOLATED = log(BURNING, "broker heartbeat failed: no controller answered")
BEHIND = log(
    1,
    "payments-3: in-sync replicas are [1, 3]; [2] did not fetch up to the log end offset within "
    "replica.lag.time.max.ms",
)
SLOW = tuple(
    log(
        BURNING,
        "a fetch from broker 1 took 1603 ms: that broker or this one is overloaded or was stopped, "
        "or the network to 10.77.0.1:9092 is slow or loses packets",
        f"12:02:0{second},000",
    )
    for second in range(3)
)


@pytest.mark.parametrize(
    ("fire", "seen", "code", "expected"),
    [
        (
            "leader_isolated",
            burning(NO_HEARTBEAT, ISOLATED, **fenced(probe=probe(BURNING, Reach.TIMED_OUT))),
            "at-min-isr",
            "broker 2's heartbeats stopped at 12:02:54; the controller fenced it at 12:03:00: no "
            "heartbeat for 6 s (broker.session.timeout.ms); it logged at 12:03:00: broker "
            "heartbeat failed: no controller answered; 127.0.0.1:9093 does not answer",
        ),
        (
            "cut_out_of_leader",
            burning(NO_HEARTBEAT, ISOLATED, **fenced()),
            "broker-fenced",
            "it logged at 12:03:00: broker heartbeat failed: no controller answered",
        ),
        (
            "cut_between_two",
            burning(BEHIND, partitions={PAYMENTS: partition(isr=(1, 3))}),
            "at-min-isr",
            "since 12:03:00: if one more replica fails, writes with acks=all are refused; broker 2 "
            "runs, but does not keep up with the leader",
        ),
        ("packet_loss", burning(*SLOW), "slow-replication", "slow or loses packets"),
        (
            "frozen_leader",
            burning(NO_HEARTBEAT, state=NodeState.PAUSED, **fenced()),
            "broker-fenced",
            "its process is paused (SIGSTOP)",
        ),
        (
            "frozen_leader, afterwards",
            burning(log(BURNING, "the event loop was blocked for 7995 ms, and all clients waited")),
            "node-was-frozen",
            "node 2 did not run for a while since 12:03:00: the event loop was blocked for 7995 ms",
        ),
        (
            "full_disk",
            burning(
                log(
                    BURNING,
                    "log directory /data is offline: append as leader: No space left on device. "
                    "Its partitions are offline",
                ),
                **offline_directory("/data"),
            ),
            "at-min-isr",
            "broker 2's log directory /data is offline: append as leader: No space left on device",
        ),
        (
            "full_metadata_disk",
            burning(log(BURNING, "log directory /meta is offline: No space left on device")),
            "log-dir-offline",
            "directory /meta of node 2 is offline since 12:03:00: No space left on device",
        ),
        (
            "no_permission",
            burning(
                log(BURNING, "log directory /data is offline: roll: Permission denied"),
                **offline_directory("/data"),
            ),
            "log-dir-offline",
            "broker 2's log directory /data is offline: roll: Permission denied",
        ),
        (
            "clock_jumps",
            burning(log(BURNING, "the wall clock jumped forwards by 3600 s. Timestamps jump")),
            "clock-jumped",
            "at 12:03:00 the wall clock jumped forwards by 3600 s",
        ),
        (
            "all_killed",
            replace(
                healthy(),
                bootstrap=(probe(1, Reach.REFUSED),),
                brokers={},
                nodes={each: Node(each, NodeState.STOPPED) for each in (1, 2, 3)},
            ),
            "bootstrap-refused",
            "no node of this cluster's directory runs",
        ),
        (
            "damaged_partition_files",
            burning(log(BURNING, "payments-3 is damaged: a batch has a wrong CRC. Its other …")),
            "log-damaged",
            "the log of payments-3 on broker 2 is damaged since 12:03:00: a batch has a wrong CRC",
        ),
        (
            "damaged_partition_files, at start",
            burning(log(BURNING, "partition payments-3 is offline: bad batch")),
            "log-damaged",
            "bad batch",
        ),
        (
            "damaged_meta_properties",
            burning(
                (BURNING, "/2/meta.properties: cluster.id is missing"),
                state=NodeState.STOPPED,
                **fenced(probe=probe(BURNING, Reach.REFUSED)),
            ),
            "broker-fenced",
            "its process does not run; its last log line was: /2/meta.properties: cluster.id is",
        ),
        (
            "damaged_quorum_state",
            burning(
                (BURNING, "The vote of this voter is lost: empty the metadata directory"),
                state=NodeState.STOPPED,
                **fenced(probe=probe(BURNING, Reach.REFUSED)),
            ),
            "broker-fenced",
            "its last log line was: The vote of this voter is lost",
        ),
    ],
)
def test_the_cause_of_a_fire(fire: str, seen: Observation, code: str, expected: str) -> None:
    sentences = {
        finding.code: finding.sentence(NOW_MS) for finding in examine(seen) if finding.code == code
    }
    assert code in sentences, (fire, [finding.code for finding in examine(seen)])
    assert expected in sentences[code]


@pytest.mark.parametrize(
    "line",
    [
        "the event loop was blocked for 7995 ms, and all clients waited",
        "the wall clock jumped forwards by 3600 s. Timestamps jump",
        "payments-3 is damaged: a batch has a wrong CRC",
        "log directory /meta is offline: No space left on device",
    ],
)
def test_what_a_node_logged_before_its_start_is_no_finding(line: str) -> None:
    seen = burning(*SLOW, log(BURNING, line))
    assert examine(seen) != []
    nodes = {each: replace(node, started_ms=at("12:03:05")) for each, node in seen.nodes.items()}
    assert examine(replace(seen, nodes=nodes)) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "recovery: /data/payments-3/0.log: truncated from 1200 to 1100 bytes: a bad CRC",
            "note log-truncated: node 2 truncated 1 damaged file at its start, and fetches the "
            "rest again since 12:03:00: /data/payments-3/0.log: truncated from 1200 to 1100 "
            "bytes: a bad CRC",
        ),
        (
            "ignoring damaged checkpoint /data/recovery-point-offset-checkpoint: bad",
            "warning file-damaged: node 2 found 1 damaged file at its start, and does without "
            "since 12:03:00: ignoring damaged checkpoint /data/recovery-point-offset-checkpoint: "
            "bad",
        ),
        (
            "/meta/__cluster_metadata-0/05-01.checkpoint is damaged: a bad CRC. It is set aside; "
            "the log is used instead",
            "warning file-damaged: node 2 found 1 damaged file at its start, and does without "
            "since 12:03:00: /meta/__cluster_metadata-0/05-01.checkpoint is damaged: a bad CRC. It "
            "is set aside; the log is used instead",
        ),
        (
            "/meta/__cluster_metadata-0 is damaged: the batch at offset 7 has a wrong CRC. The "
            "snapshot at offset 9 replaces it",
            "warning file-damaged: node 2 found 1 damaged file at its start, and does without "
            "since 12:03:00: /meta/__cluster_metadata-0 is damaged: the batch at offset 7 has a "
            "wrong CRC. The snapshot at offset 9 replaces it",
        ),
    ],
)
def test_what_a_node_repaired_by_itself(line: str, expected: str) -> None:
    """A line that is there twice counts once."""
    (finding,) = examine(burning(log(BURNING, line), log(BURNING, line)))
    text = f"{finding.level.name.lower()} {finding.code}: {finding.sentence(NOW_MS)}"
    assert text == expected


def test_a_node_that_was_killed_and_lost_nothing_is_no_finding() -> None:
    line = "log directory /data was not shut down cleanly: 45 logs were recovered"
    assert examine(burning(log(BURNING, line))) == []


CUT = log(
    1,
    "broker 2 left the in-sync replicas of payments-0, payments-1, payments-2 and 9 more: broker 2 "
    "has not fetched from broker 1 for 7 s",
)


def test_two_brokers_that_do_not_reach_each_other() -> None:
    """The leader logged it, and the controllers hear the follower."""
    seen = burning(CUT, partitions={PAYMENTS: partition(isr=(1, 3))})
    (finding,) = examine(seen)
    assert finding.sentence(NOW_MS) == (
        "payments-3 is under-replicated, at min.insync.replicas (2) since 12:03:00: if one more "
        "replica fails, writes with acks=all are refused; broker 2 runs, but does not keep up with "
        "the leader (replica.lag.time.max.ms); broker 1 logged at 12:03:00: broker 2 has not "
        "fetched from broker 1 for 7 s; the controllers hear it: the network between brokers 1 and "
        "2 is cut, in one direction or both"
    )
    assert finding.todos[0] == "check firewalls and routes between brokers 1 and 2"


@pytest.mark.parametrize(
    ("line", "leader"),
    [
        (CUT, 3),
        (log(1, CUT[1].partition(": ")[2].replace("and 9 more", "and payments-5")), 1),
        (log(1, "broker 2 left the in-sync replicas of payments-3: it is 12 offsets behind"), 1),
    ],
    ids=["another leader", "another partition", "behind"],
)
def test_a_line_that_does_not_show_a_cut(line: tuple[int, str], leader: int) -> None:
    seen = burning(line, partitions={PAYMENTS: partition(isr=(1, 3), leader=leader)})
    (finding,) = examine(seen)
    assert "is cut" not in finding.sentence(NOW_MS)


def test_a_broker_that_the_controllers_do_not_hear_and_that_answers_here() -> None:
    seen = burning(**fenced(last_metadata_fetch_ms=NOW_MS - 9_000))
    sentences = {each.code: each.sentence(NOW_MS) for each in examine(seen)}
    assert sentences["broker-fenced"] == (
        "broker 2 is fenced: 1 replica cannot be used; broker 2 has not fetched metadata for 9 s; "
        "the controller has fenced it; 127.0.0.1:9093 answers here, so its process runs: the "
        "network between it and the controllers is cut, in one direction or both"
    )


def test_a_broker_that_starts_is_not_called_cut_off() -> None:
    sentences = [each.sentence(NOW_MS) for each in examine(burning(**fenced()))]
    assert not any("is cut" in sentence for sentence in sentences)


def test_all_slow_fetches_have_a_broker_in_common() -> None:
    others = log(3, SLOW[0][1].partition("penstock.node: ")[2].replace("broker 1", "broker 2"))
    brokers = {each: broker(each) for each in (1, 3)}
    brokers[BURNING] = broker(BURNING, probe=probe(BURNING, round_trip_ms=1_200))
    brokers[1] = broker(1, probe=probe(1, round_trip_ms=3))
    now = BURNING, SLOW[0][1].replace("12:02:0", "12:02:5")
    assert examine(burning(now, others)) == []
    assert examine(burning(SLOW[0], now, others)) == []
    (finding,) = examine(burning(now, others, others, brokers=brokers))
    assert finding.sentence(NOW_MS) == (
        "broker 2 replicates slowly: 3 fetches between it and brokers 1 and 3 took long in the "
        "last 10 min; broker 3 logged at 12:03:00: a fetch from broker 2 took 1603 ms: that broker "
        "or this one is overloaded or was stopped, or the network to 10.77.0.1:9092 is slow or "
        "loses packets; it answers here after 1 s, another broker after 3 ms; its log has no "
        "blocked event loop: the network to it is more likely to be slow or to lose packets"
    )


def test_a_broker_that_answers_slowly() -> None:
    brokers = {each: broker(each, probe=probe(each, round_trip_ms=4)) for each in (1, 2, 3)}
    assert examine(burning(brokers=brokers)) == []
    brokers[3] = broker(3, probe=probe(3, round_trip_ms=2_000))
    (finding,) = examine(burning(brokers=brokers))
    assert finding.sentence(NOW_MS) == (
        "broker 3 answers slowly: it answers here after 2 s, another broker after 4 ms"
    )
    all_slow = {each: broker(each, probe=probe(each, round_trip_ms=2_000)) for each in (1, 2, 3)}
    assert examine(burning(brokers=all_slow)) == []


def test_a_clock_that_jumped_back_has_a_line_before_the_start_of_its_process() -> None:
    seen = burning(log(BURNING, "the wall clock jumped backwards by 3600 s. …", "11:03:00,000"))
    started = {each: replace(node, started_ms=at("12:00:00")) for each, node in seen.nodes.items()}
    (finding,) = examine(replace(seen, nodes=started))
    assert finding.code == "clock-jumped"
    earlier = {each: replace(node, started_ms=at("12:03:05")) for each, node in seen.nodes.items()}
    assert examine(replace(seen, nodes=earlier)) == []
