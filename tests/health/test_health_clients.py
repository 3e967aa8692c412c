"""Refused clients in the logs of nodes: what is read of them, and what doctor says."""

from __future__ import annotations

from datetime import UTC

from penstock.health.clients import check_clients
from penstock.health.log_lines import MAX_REFUSED_CLIENTS, read_log
from penstock.health.observations import EventKind, Observation, Unseen

AT = "2026-11-18 12:00:00,000"
HANDSHAKE = (
    f"{AT} WARNING [node 1] penstock.server.tls.failures: TLS handshake with 10.0.0.7 on CLIENTS "
    "failed: the peer sent bytes that are not TLS. Clients of this listener need "
    "security.protocol=SSL or SASL_SSL"
)
LOGIN = (
    f"{AT} INFO [node 1] penstock.audit: connection from 10.0.0.8:50122 on CLIENTS: authentication "
    "failed: SCRAM-SHA-512: wrong password of 'alice'"
)
DENIED = (
    f"{AT} INFO [node 1] penstock.audit: Metadata v13 of client 'c' ('User:eve') at 10.0.0.9:1 on "
    "CLIENTS: denied, since 'User:eve' from 10.0.0.9 may not DESCRIBE TOPIC 'orders'"
)
CHANGE = f"{AT} INFO [node 1] penstock.audit: CreateTopics v7 of client 'c': 'orders': done"
FENCED = f"{AT} WARNING [node 1] penstock.node: fencing broker 2: no heartbeat for 9 s"


def observed(*lines: str, minutes_later: int = 1, unseen: tuple[Unseen, ...] = ()) -> Observation:
    log = read_log(1, "\n".join(lines), UTC)
    now_ms = (log.events[-1].at_ms if log.events else 0) + minutes_later * 60_000
    return Observation(now_ms, UTC, events=log.events, unseen=unseen)


def test_each_refused_client_is_a_warning_with_advice() -> None:
    findings = list(check_clients(observed(HANDSHAKE, LOGIN, DENIED, CHANGE)))
    codes = {finding.code: finding for finding in findings}
    assert set(codes) == {"client-handshake", "client-login", "client-denied"}
    assert "10.0.0.7" in codes["client-handshake"].sentence(0)
    assert "wrong password of 'alice'" in codes["client-login"].sentence(0)
    assert "DESCRIBE TOPIC 'orders'" in codes["client-denied"].sentence(0)
    assert all(finding.todos for finding in findings)


def test_refusals_that_repeat_or_are_old_are_left_out() -> None:
    assert len(list(check_clients(observed(*[DENIED] * 50)))) == 1
    assert not list(check_clients(observed(DENIED, minutes_later=60)))


def test_refused_clients_neither_end_a_log_nor_hide_what_explains_a_node() -> None:
    many = [LOGIN.replace("10.0.0.8", f"10.1.{n // 250}.{n % 250}") for n in range(2_000)]
    log = read_log(1, "\n".join([FENCED, *many]), UTC)
    assert log.last_line.startswith("fencing broker 2")
    kinds = [event.kind for event in log.events]
    assert kinds.count(EventKind.FENCED) == 1
    assert kinds.count(EventKind.LOGIN_FAILED) == MAX_REFUSED_CLIENTS


def test_a_principal_without_entries_is_told_which_it_needs() -> None:
    denied = Unseen("the quorum", "CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed.")
    other = Unseen("the topics", "no answer within 3 s")
    (finding,) = check_clients(observed(unseen=(denied, other)))
    assert finding.code == "acls-missing"
    assert "the quorum" in finding.says
    assert "the topics" not in finding.says
