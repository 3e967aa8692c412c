"""The order of requests on a SASL connection, sessions that end, and re-authentication."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.security.principals import ANONYMOUS, KafkaPrincipal
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.plain import PlainServer
from penstock.security.sasl.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Mechanism,
    SaslSession,
    State,
)

METADATA, PRODUCE = 3, 0
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"
OK = ErrorCode.NONE


class Expiring(PlainServer):
    """PLAIN with a credential that expires at 5 s after 1970."""

    expires_ms = 5_000


def session(max_reauth_ms: int = 0, server: type[PlainServer] = PlainServer) -> SaslSession:
    users = {"alice": "a", "bob": "b"}
    return SaslSession(
        {
            "PLAIN": Mechanism(lambda: server(users), max_reauth_ms),
            "OTHER": Mechanism(lambda: server(users), 0),
        }
    )


def authenticated(max_reauth_ms: int = 0, server: type[PlainServer] = PlainServer) -> SaslSession:
    made = session(max_reauth_ms, server)
    made.handshake("PLAIN", 1, 0)
    made.authenticate(ALICE, 0, 0)
    return made


@pytest.mark.parametrize("key", [METADATA, PRODUCE, SASL_AUTHENTICATE, -1, 9_999])
def test_no_request_is_admitted_before_the_handshake(key: int) -> None:
    with pytest.raises(ProtocolError, match="during SASL handshake"):
        session().admit(key, 0)


def test_versions_are_told_once() -> None:
    made = session()
    made.admit(API_VERSIONS, 0)
    made.told_versions()
    with pytest.raises(ProtocolError):
        made.admit(API_VERSIONS, 0)
    made.admit(SASL_HANDSHAKE, 0)


@pytest.mark.parametrize("key", [METADATA, API_VERSIONS, SASL_HANDSHAKE])
def test_only_tokens_are_admitted_during_an_authentication(key: int) -> None:
    made = session()
    assert made.handshake("PLAIN", 1, 0) is OK
    made.admit(SASL_AUTHENTICATE, 0)
    with pytest.raises(ProtocolError, match="during SASL authentication"):
        made.admit(key, 0)


def test_an_authenticated_connection_has_a_principal_and_may_send_everything() -> None:
    made = session()
    assert made.principal == ANONYMOUS
    made.handshake("PLAIN", 1, 0)
    answer = made.authenticate(ALICE, 0, 0)
    assert (answer.token, answer.lifetime_ms) == (b"", 0)
    assert made.principal == KafkaPrincipal("User", "alice")
    made.admit(METADATA, 1e12)


def test_a_failure_ends_everything_and_does_not_name_the_user_to_the_client() -> None:
    made = session()
    made.handshake("PLAIN", 1, 0)
    with pytest.raises(SaslFailed) as raised:
        made.authenticate(b"\0alice\0wrong", 0, 0)
    assert raised.value.client_message == "Authentication failed: Invalid username or password"
    assert made.state is State.FAILED
    assert made.principal == ANONYMOUS
    for key in (SASL_AUTHENTICATE, SASL_HANDSHAKE, API_VERSIONS, METADATA):
        with pytest.raises(ProtocolError):
            made.admit(key, 0)
    with pytest.raises(SaslFailed):
        made.authenticate(ALICE, 0, 0)


def test_an_unknown_mechanism_is_refused() -> None:
    made = session()
    assert made.handshake("GSSAPI", 1, 0) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert made.state is State.FAILED
    assert made.mechanism_names == ("PLAIN", "OTHER")


def test_tokens_after_handshake_v0_have_no_header() -> None:
    made = session()
    made.handshake("PLAIN", 0, 0)
    assert made.takes_raw_tokens
    made.authenticate(ALICE, 0, 0)
    assert not made.takes_raw_tokens


def test_a_re_authentication_needs_tokens_with_headers() -> None:
    """Others would overtake responses that are not ready."""
    made = session()
    made.handshake("PLAIN", 0, 0)
    made.authenticate(ALICE, 0, 0)
    assert made.handshake("PLAIN", 0, 10) is ErrorCode.ILLEGAL_SASL_STATE
    assert made.is_complete


def test_a_session_with_a_lifetime_ends_unless_the_client_authenticates_again() -> None:
    made = session(max_reauth_ms=1_500)
    made.handshake("PLAIN", 1, 10)
    assert made.authenticate(ALICE, 10, 0).lifetime_ms == 1_500
    made.admit(METADATA, 11.5)
    with pytest.raises(ProtocolError, match="expired"):
        made.admit(METADATA, 11.51)
    made.admit(SASL_HANDSHAKE, 12)
    assert made.handshake("PLAIN", 1, 12) is OK
    with pytest.raises(ProtocolError):
        made.admit(METADATA, 12)
    made.authenticate(ALICE, 12, 0)
    made.admit(METADATA, 13.5)
    assert made.is_reauthentication


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 2_000), (500, 500), (9_000, 2_000)])
def test_a_session_ends_with_its_credential(max_reauth_ms: int, lifetime_ms: int) -> None:
    made = session(max_reauth_ms, Expiring)
    made.handshake("PLAIN", 1, 0)
    assert made.authenticate(ALICE, 0, wall_ms=3_000).lifetime_ms == lifetime_ms


def test_a_credential_that_has_expired_ends_the_session_at_once() -> None:
    made = session(0, Expiring)
    made.handshake("PLAIN", 1, 0)
    assert made.authenticate(ALICE, 0, wall_ms=8_000).lifetime_ms == 0
    with pytest.raises(ProtocolError, match="expired"):
        made.admit(METADATA, 0.001)


def test_the_principal_cannot_change() -> None:
    made = authenticated()
    assert made.handshake("PLAIN", 1, 5) is OK
    with pytest.raises(SaslFailed, match="Cannot change principals") as raised:
        made.authenticate(BOB, 5, 0)
    assert raised.value.client_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert made.principal == KafkaPrincipal("User", "alice")
    assert made.state is State.FAILED


def test_the_mechanism_cannot_change() -> None:
    made = authenticated()
    assert made.handshake("OTHER", 1, 5) is OK
    with pytest.raises(SaslFailed, match="must be the first one, PLAIN"):
        made.authenticate(ALICE, 5, 0)
    assert made.state is State.FAILED


def test_a_wrong_password_ends_a_re_authentication() -> None:
    made = authenticated()
    made.handshake("PLAIN", 1, 5)
    with pytest.raises(SaslFailed):
        made.authenticate(b"\0alice\0wrong", 5, 0)
    with pytest.raises(ProtocolError):
        made.admit(METADATA, 5)


def test_re_authentications_are_a_second_apart() -> None:
    made = authenticated()
    assert made.handshake("PLAIN", 1, 5) is OK
    made.authenticate(ALICE, 5, 0)
    assert made.handshake("PLAIN", 1, 5.9) is ErrorCode.ILLEGAL_SASL_STATE
    made.admit(METADATA, 5.9)
    assert made.handshake("PLAIN", 1, 6) is OK


def test_a_token_without_an_authentication_is_refused() -> None:
    with pytest.raises(SaslFailed):
        authenticated().authenticate(ALICE, 0, 0)
