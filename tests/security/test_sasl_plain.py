"""PLAIN (RFC 4616)."""

from __future__ import annotations

import hmac

import pytest

from penstock.limits import MAX_PLAIN_MESSAGE_BYTES
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "alice-secret", "tim": "tänstaaftanstaaf"}


def test_client_and_server_agree() -> None:
    client, server = PlainClient("tim", "tänstaaftanstaaf"), PlainServer(USERS)
    challenge = server.evaluate(client.first())
    assert challenge == b""
    assert client.evaluate(challenge) is None
    assert client.is_complete
    assert server.is_complete
    assert server.authorization_id == "tim"


def test_the_authorization_id_may_equal_the_user() -> None:
    server = PlainServer(USERS)
    server.evaluate(b"alice\0alice\0alice-secret")
    assert server.authorization_id == "alice"


def test_a_user_cannot_act_as_another_one() -> None:
    """CVE-2017-12610."""
    server = PlainServer(USERS)
    with pytest.raises(SaslFailed, match="authorization id that is different"):
        server.evaluate(b"tim\0alice\0alice-secret")
    assert not server.is_complete


@pytest.mark.parametrize(
    ("message", "client_message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN message: it is not UTF-8"),
    ],
)
def test_a_refusal_has_kafkas_message(message: bytes, client_message: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslFailed) as raised:
        server.evaluate(message)
    assert raised.value.client_message == client_message
    assert "secret" not in str(raised.value)
    with pytest.raises(SaslFailed, match="one message"):
        server.evaluate(b"\0alice\0alice-secret")


def test_a_large_message_is_refused() -> None:
    with pytest.raises(SaslFailed, match="bytes"):
        PlainServer(USERS).evaluate(b"\0a\0" + b"x" * MAX_PLAIN_MESSAGE_BYTES)


def test_an_empty_password_of_an_unknown_user_does_not_match_the_comparison_with_nothing() -> None:
    with pytest.raises(SaslFailed):
        PlainServer({"empty": ""}).evaluate(b"\0empty\0\0")


def test_passwords_of_known_and_unknown_users_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CVE-2021-38153: digests of equal length reach compare_digest, whatever the password is."""
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def spy(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    for message in (b"\0alice\0a", b"\0nobody\0alice-secret", b"\0alice\0" + b"x" * 1000):
        with pytest.raises(SaslFailed):
            PlainServer(USERS).evaluate(message)
    assert compared == [(32, 32)] * 3


def test_a_client_refuses_a_challenge() -> None:
    client = PlainClient("alice", "alice-secret")
    client.first()
    with pytest.raises(SaslFailed, match="challenge"):
        client.evaluate(b"more")
    assert not client.is_complete
