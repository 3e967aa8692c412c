"""Clients that a cluster refuses: handshakes, logins and requests that its nodes log as failed, and
what this client itself may not look at. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Event, EventKind, Observation

# Older refusals say little about the clients of now.
_RECENT_MS = 15 * 60_000
# Clients that are named, the latest.
_MAX_NAMED = 10
_DENIED = "AUTHORIZATION_FAILED"
_TODO = {
    EventKind.HANDSHAKE_FAILED: (
        "compare security.protocol and ssl.* of that client with the listener: docs/TLS.md"
    ),
    EventKind.LOGIN_FAILED: (
        "check sasl.mechanism, user and password of that client; penstock users set USER sets a "
        "new password"
    ),
    EventKind.DENIED: (
        "if the client should be allowed to, run penstock acls create PRINCIPAL --operation ... "
        "with the operation and resource of the reason"
    ),
}
_SAYS = {
    EventKind.HANDSHAKE_FAILED: (
        "client-handshake",
        "a client at {}",
        "fails in its TLS handshake",
    ),
    EventKind.LOGIN_FAILED: ("client-login", "a client at {}", "fails to log in"),
    EventKind.DENIED: ("client-denied", "the principal {}", "is denied requests"),
}


def check_clients(seen: Observation) -> Iterator[Finding]:
    latest: dict[tuple[EventKind, str, str], Event] = {}
    for event in seen.events:
        if event.kind in _SAYS and seen.now_ms - event.at_ms <= _RECENT_MS:
            latest[event.kind, event.subject, event.words] = event
    for event in list(latest.values())[-_MAX_NAMED:]:
        code, subject, says = _SAYS[event.kind]
        yield Finding(
            code,
            Level.WARNING,
            (subject.format(event.subject),),
            says,
            (Reason(code, f"node {event.node} logged: {event.words}"),),
            _TODO[event.kind],
        )
    denied = [unseen for unseen in seen.unseen if _DENIED in unseen.reason]
    if denied:
        yield Finding(
            "acls-missing",
            Level.WARNING,
            ("the principal of this command",),
            f"may not look at {', '.join(unseen.subject for unseen in denied)}",
            tuple(
                Reason("acls-missing", reason)
                for reason in dict.fromkeys(unseen.reason for unseen in denied)
            ),
            "give it DESCRIBE on the cluster, and on topics and groups: penstock acls create "
            "User:NAME --operation describe --cluster --topic '*' --group '*'",
        )
