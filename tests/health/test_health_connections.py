"""Why clients cannot connect, and what the quorum says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.health.examine import examine
from penstock.health.findings import Level
from penstock.health.observations import (
    Node,
    NodeState,
    Observation,
    Probe,
    Quorum,
    QuorumReplica,
    Reach,
)
from tests.health.healthy import NOW_MS, broker, found, healthy, probe, words


def only_bootstrap(reach: Reach, detail: str = "") -> Observation:
    return Observation(NOW_MS, bootstrap=(Probe("kafka.example", 9092, reach, detail),))


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        (Reach.UNKNOWN_HOST, "the host name kafka.example does not exist"),
        (Reach.NAME_SERVER, "the name server did not resolve kafka.example: why"),
        (Reach.REFUSED, "kafka.example:9092 refuses connections"),
        (Reach.TIMED_OUT, "kafka.example:9092 does not answer"),
        (Reach.UNREACHABLE, "kafka.example:9092 is not reachable: why"),
        (Reach.SILENT, "kafka.example:9092 accepts connections and answers nothing"),
        (Reach.CLOSED, "kafka.example:9092 closes connections before it answers"),
        (Reach.HTTP, "kafka.example:9092 speaks HTTP, not Kafka's protocol"),
        (Reach.TLS, "kafka.example:9092 speaks TLS"),
        (Reach.OTHER_PROTOCOL, "kafka.example:9092 does not speak Kafka's protocol: why"),
        (Reach.AUTHENTICATION, "kafka.example:9092 closes the connection after ApiVersions"),
        (Reach.CONTROLLER, "kafka.example:9092 is the listener of a controller"),
        (Reach.VERSION, "kafka.example:9092 supports no version in common: why"),
    ],
)
def test_a_bootstrap_server_that_cannot_be_used(reach: Reach, expected: str) -> None:
    finding = found(only_bootstrap(reach, "why"))[f"bootstrap-{reach.value}"]
    assert finding.level is Level.PROBLEM
    assert finding.sentence(NOW_MS) == (
        f"bootstrap server kafka.example:9092 cannot be used: {expected}"
    )
    assert finding.todos


def test_every_result_of_a_probe_but_kafka_has_words() -> None:
    assert found(only_bootstrap(Reach.KAFKA)) == {}
    for reach in set(Reach) - {Reach.KAFKA}:
        assert len(found(only_bootstrap(reach))) == 1


def test_bootstrap_servers_with_the_same_fault_are_one_finding() -> None:
    probes = tuple(Probe("10.0.0.1", port, Reach.REFUSED) for port in (9092, 9093))
    assert words(Observation(NOW_MS, bootstrap=probes)) == {
        "bootstrap-refused": "bootstrap server 10.0.0.1:9092 and bootstrap server 10.0.0.1:9093 "
        "cannot be used: each of them refuses connections"
    }


def test_an_invalid_list_of_bootstrap_servers() -> None:
    seen = Observation(NOW_MS, bootstrap_error="'kafka:port' is not an address")
    assert words(seen)["bootstrap-invalid"].endswith("'kafka:port' is not an address")


def test_one_of_two_bootstrap_servers_is_a_warning() -> None:
    seen = healthy(bootstrap=(probe(1), Probe("old", 9092, Reach.UNKNOWN_HOST)))
    assert found(seen)["bootstrap-unknown-host"].level is Level.WARNING


def test_bootstrap_servers_of_two_clusters() -> None:
    other = Probe("other", 9092, Reach.KAFKA, cluster_id="staging")
    assert "bootstrap-two-clusters" in found(healthy(bootstrap=(probe(1), other)))


def test_a_local_cluster_that_does_not_run() -> None:
    stopped = Node(1, NodeState.STOPPED, restart="penstock up --dir data")
    seen = replace(only_bootstrap(Reach.REFUSED), nodes={1: stopped})
    finding = found(seen)["bootstrap-refused"]
    assert finding.todos[0] == "penstock up --dir data"


def advertised(probed: Probe, **fields: object) -> Observation:
    seen = healthy(bootstrap=(Probe("10.0.0.1", 9092, Reach.KAFKA, cluster_id="penstock"),))
    node = {2: Node(2, NodeState.RUNNING)}
    return replace(seen, brokers={**seen.brokers, 2: broker(2, probe=probed, **fields)}, nodes=node)


@pytest.mark.parametrize(
    ("probed", "code"),
    [
        (Probe("broker-2", 9092, Reach.UNKNOWN_HOST), "advertised-unknown-host"),
        (Probe("10.9.9.9", 9092, Reach.TIMED_OUT), "advertised-timed-out"),
        (Probe("10.0.0.2", 9093, Reach.REFUSED), "advertised-refused"),
        (Probe("10.0.0.2", 9092, Reach.TLS), "advertised-tls"),
        (
            Probe("10.0.0.2", 9092, Reach.KAFKA, cluster_id="staging"),
            "advertised-other-cluster",
        ),
    ],
)
def test_an_advertised_address_that_clients_cannot_use(probed: Probe, code: str) -> None:
    finding = found(advertised(probed))[code]
    assert finding.subjects == ("broker 2",)
    assert "advertised.listeners" in finding.todos[-1]


def test_a_broker_that_advertises_localhost_to_another_machine() -> None:
    local = Probe("localhost", 9092, Reach.REFUSED, addresses=("127.0.0.1",))
    finding = found(advertised(local))["advertised-refused"]
    assert finding.reasons[-1].code == "advertised-loopback"


def test_a_fenced_broker_is_not_reported_as_unreachable_too() -> None:
    seen = advertised(probe(2, Reach.REFUSED), fenced=True)
    assert set(found(seen)) == {"broker-fenced"}


def test_a_paused_broker_that_is_not_fenced_yet() -> None:
    seen = advertised(probe(2, Reach.SILENT))
    paused = Node(2, NodeState.PAUSED, resume="penstock nodes resume 2")
    seen = replace(seen, nodes={2: paused})
    finding = found(seen)["broker-silent"]
    assert finding.todos == ("penstock nodes resume 2",)


def test_brokers_of_two_versions() -> None:
    seen = healthy()
    old = {"Fetch": (4, 12)}
    brokers = {
        each.id: broker(
            each.id, probe=probe(each.id, versions=old if each.id == 3 else {"Fetch": (4, 18)})
        )
        for each in seen.brokers.values()
    }
    finding = found(replace(seen, brokers=brokers))["mixed-versions"]
    assert finding.subjects == ("broker 3",)
    assert finding.level is Level.NOTE


# The quorum


def voter(node_id: int, *, silent_ms: int = 200, end: int = 100) -> QuorumReplica:
    return QuorumReplica(node_id, end, NOW_MS - silent_ms, NOW_MS - silent_ms)


def test_a_quorum_without_a_leader_names_the_controllers_that_do_not_run() -> None:
    nodes = {
        each: Node(each, NodeState.RUNNING if each == 1 else NodeState.STOPPED)
        for each in (1, 2, 3)
    }
    seen = healthy(quorum=Quorum(error="no controller answered"), nodes=nodes)
    chain = words(seen)["quorum-no-leader"]
    assert "no controller answered; 2 of 3 controllers do not run: a majority is 2" in chain


def test_a_silent_voter() -> None:
    quorum = Quorum(1, 5, (voter(1), voter(2, silent_ms=30_000), voter(3)))
    assert words(healthy(quorum=quorum))["voter-silent"] == (
        "controller 2 does not take part in the quorum: it has not fetched from the leader for "
        "30 s; 2 of 3 voters are left: if one more fails, the quorum stops"
    )


def test_a_voter_that_the_leader_has_not_heard_of() -> None:
    """Apache Kafka has no time of the last fetch of such a voter, and -1 as its log end offset."""
    quorum = Quorum(1, 5, (voter(1), voter(2), QuorumReplica(3, -1)))
    assert (
        "it has not fetched from the leader since" in words(healthy(quorum=quorum))["voter-silent"]
    )


def test_a_quorum_that_was_seen_some_seconds_ago_is_not_silent_since_then() -> None:
    quorum = Quorum(1, 5, tuple(voter(each, silent_ms=9_000) for each in (1, 2, 3)))
    assert "voter-silent" in {finding.code for finding in examine(healthy(quorum=quorum))}
    assert found(healthy(quorum=replace(quorum, seen_ms=NOW_MS - 8_500))) == {}


def test_a_voter_that_fetches_but_is_behind() -> None:
    slow = QuorumReplica(2, 40, NOW_MS - 100, NOW_MS - 60_000)
    finding = found(healthy(quorum=Quorum(1, 5, (voter(1), slow, voter(3)))))["voter-behind"]
    assert finding.level is Level.WARNING
    assert finding.reasons[0].words == (
        "it is 60 metadata records behind, and had all of them last at 12:02:12"
    )


def test_a_broker_without_the_newest_metadata() -> None:
    slow = QuorumReplica(2, 40, NOW_MS - 100, NOW_MS - 60_000)
    quorum = Quorum(101, 5, (voter(101), voter(102), voter(103)), (slow, voter(3)))
    finding = found(healthy(quorum=quorum))["metadata-behind"]
    assert finding.subjects == ("broker 2",)


def test_an_idle_quorum_is_not_behind() -> None:
    """While nothing is written, the last time of being caught up does not advance."""
    idle = QuorumReplica(2, 100, NOW_MS - 100, NOW_MS - 600_000)
    assert found(healthy(quorum=Quorum(1, 5, (voter(1), idle, voter(3))))) == {}


@pytest.mark.parametrize(("voters", "code"), [((1, 2), "even-voters"), ((1,), "single-voter")])
def test_numbers_of_voters(voters: tuple[int, ...], code: str) -> None:
    seen = healthy(quorum=Quorum(1, 5, tuple(map(voter, voters))))
    assert set(found(seen)) == {code}
