"""OAUTHBEARER: its messages, the checks of tokens, and where keys may come from."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_OAUTH_MESSAGE_BYTES
from penstock.security.jwt_checker import (
    ExpectedClaims,
    InvalidKeys,
    JwtChecker,
    VerificationKey,
    parse_jwks,
)
from penstock.security.principals import KafkaPrincipal
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.oauthbearer import (
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
    VerifiedToken,
    parse_first,
)
from penstock.server import jwks
from penstock.server.jwks import Jwks
from penstock.world import World
from penstock.world.real import run
from tests.security import test_sasl_server as sasl_server
from tests.server.serving import heartbeat

NOW_S = 1_000_000
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
OTHER_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, **more: str) -> dict[str, Any]:
    algorithm: Any = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **more}


KEY_SET = {"keys": [jwk(RSA_KEY, kid="rsa", use="sig"), jwk(EC_KEY, kid="ec", alg="ES256")]}


def keys(key_set: object = KEY_SET) -> tuple[VerificationKey, ...]:
    return parse_jwks(json.dumps(key_set).encode())


def token(
    key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any
) -> str:
    given = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600, **claims}
    given = {name: value for name, value in given.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(given, key, algorithm=algorithm, headers=headers)


def checker(
    expected: ExpectedClaims | None = None, missing: Callable[[], None] = lambda: None
) -> JwtChecker:
    known = keys()
    return JwtChecker(lambda: known, expected or ExpectedClaims(), lambda: NOW_S * 1000, missing)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


# Messages


def first(text: str) -> bytes:
    return text.replace("^", "\x01").encode()


def test_the_example_of_rfc_7628() -> None:
    message = first(
        "n,a=user@example.com,^host=server.example.com^port=143^"
        "auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==^^"
    )
    assert parse_first(message) == (
        "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==",
        "user@example.com",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n,,",
        "n,,^^",
        "n,,^auth=Bearer x^",
        "n,,^auth=Basic x^^",
        "n,,^auth=Bearer^^",
        "n,,^auth=Bearer a b^^",
        "n,,^auth=Bearer a^auth=Bearer b^^",
        "y,,^auth=Bearer x^^",
        "n,,^host=x^^",
        "n,,^auth=Bearer \u00e9^^",
        f"n,,^auth=Bearer {'x' * MAX_OAUTH_MESSAGE_BYTES}^^",
    ],
)
def test_a_malformed_message_is_refused(text: str) -> None:
    with pytest.raises(SaslFailed):
        parse_first(first(text))


def test_client_and_server_agree() -> None:
    given = token()
    client, server = OAuthBearerClient(given), OAuthBearerServer(checker())
    assert client.evaluate(server.evaluate(client.first())) is None
    assert client.is_complete
    assert server.authorization_id == "alice"
    assert server.expires_ms == (NOW_S + 600) * 1000


def test_a_refused_token_is_acknowledged_and_then_fails() -> None:
    client, server = OAuthBearerClient(token(exp=NOW_S - 60)), OAuthBearerServer(checker())
    answer = client.evaluate(server.evaluate(client.first()))
    assert answer == b"\x01"
    with pytest.raises(SaslFailed, match="expired") as raised:
        server.evaluate(answer)
    assert raised.value.client_message == '{"status":"invalid_token"}'
    with pytest.raises(SaslFailed, match="after the end"):
        server.evaluate(OAuthBearerClient(token()).first())
    assert not server.is_complete


def test_another_authorization_id_is_refused() -> None:
    server = OAuthBearerServer(checker())
    with pytest.raises(SaslFailed, match="authorization id"):
        server.evaluate(first(f"n,a=bob,^auth=Bearer {token()}^^"))


# Tokens


# The names of these tests must not have a token, which differs in each process.
@pytest.mark.parametrize(
    "given",
    [
        token(),
        token(kid=None),
        token(EC_KEY, "ES256", "ec"),
        token(RSA_KEY, "PS512"),
        token(exp=NOW_S - 29),
        token(nbf=NOW_S + 29),
        token(iat=NOW_S + 29),
    ],
    ids=range(7),
)
def test_a_good_token(given: str) -> None:
    assert checker().check(given).principal == "alice"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (token(exp=NOW_S - 30), "expired"),
        (token(exp=None), "no time exp"),
        (token(iat=None), "no time iat"),
        (token(iat=NOW_S + 31), "issued in the future"),
        (token(nbf=NOW_S + 31), "not valid yet"),
        (token(sub=None), "no claim sub"),
        (token(sub=" "), "no claim sub"),
        (token(sub="x" * 1_001), "too long"),
        (token(OTHER_KEY), "no known key"),
        (token(kid="unknown"), "unknown key"),
        (token(EC_KEY, "ES256", "rsa"), "no known key"),
        (token()[:-4] + "AAAA", "no known key"),
        ("abc", "malformed"),
        ("a.b.c", "malformed"),
        (unsigned({"alg": "none", "kid": "rsa"}, {"sub": "alice"}), "'none'"),
        (unsigned({"alg": "None", "kid": "rsa"}, {"sub": "alice"}), "'None'"),
        (unsigned({"kid": "rsa"}, {"sub": "alice"}), "signed with|malformed"),
        (unsigned({"alg": "RS256", "kid": "rsa", "crit": ["b64"]}, {}), "critical|malformed"),
        (unsigned({"alg": "RS256", "kid": 7}, {}), "malformed"),
    ],
    ids=range(19),
)
def test_a_bad_token(given: str, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        checker().check(given)


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    """The classic confusion of HS256 with RS256."""
    public = json.dumps(jwk(RSA_KEY)).encode()
    claims = {"sub": "admin", "iat": NOW_S, "exp": NOW_S + 60}
    signed = unsigned({"alg": "HS256", "kid": "rsa"}, claims).rpartition(".")[0]
    signature = hmac.digest(public, signed.encode(), "sha256")
    forged = f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    with pytest.raises(InvalidToken, match="'HS256'"):
        checker().check(forged)


def test_times_that_are_no_numbers_are_refused() -> None:
    for value in (True, "soon", float("nan"), float("inf"), -1, 2**41, 10**400):
        with pytest.raises(InvalidToken):
            checker()._check_claims({"sub": "a", "iat": NOW_S, "exp": value})


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({"iss": "https://issuer", "aud": "kafka"}, True),
        ({"iss": "https://issuer", "aud": ["other", "kafka"]}, True),
        ({"iss": "https://issuer/", "aud": "kafka"}, False),
        ({"iss": "https://issuer", "aud": "other"}, False),
        ({"iss": "https://issuer", "aud": []}, False),
        ({"iss": "https://issuer"}, False),
        ({"aud": "kafka"}, False),
    ],
)
def test_issuer_and_audience(claims: dict[str, Any], accepted: bool) -> None:
    expected = ExpectedClaims(("kafka", "penstock"), "https://issuer")
    if accepted:
        assert checker(expected).check(token(**claims)).principal == "alice"
        return
    with pytest.raises(InvalidToken, match=r"issuer|audience"):
        checker(expected).check(token(**claims))


def test_another_claim_may_name_the_principal() -> None:
    expected = ExpectedClaims(subject_claim="azp")
    assert checker(expected).check(token(azp="billing")) == VerifiedToken(
        "billing", (NOW_S + 600) * 1000
    )


def test_an_unknown_key_is_reported() -> None:
    reported: list[int] = []
    with pytest.raises(InvalidToken):
        checker(missing=lambda: reported.append(1)).check(token(kid="new"))
    assert reported == [1]


# Keys


def test_symmetric_and_encryption_keys_are_skipped() -> None:
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(b"secret").decode(), "kid": "s"}
    found = keys({"keys": [secret, jwk(OTHER_KEY, use="enc"), "no key", *KEY_SET["keys"]]})
    assert [key.key_id for key in found] == ["rsa", "ec"]
    with pytest.raises(InvalidKeys, match="no public key"):
        keys({"keys": [secret]})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 1}', b"[" * 100_000, b"\xff"])
def test_a_bad_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidKeys):
        parse_jwks(data)


def make_jwks(world: World, url: str, allowed: tuple[str, ...]) -> Jwks:
    return Jwks(world, url, allowed, refresh_s=60, backoff_s=0.1, max_backoff_s=1)


@pytest.mark.parametrize(
    ("url", "allowed", "reason"),
    [
        ("file:///etc/passwd", (), "is not allowed"),
        ("http://169.254.169.254/latest", ("https://issuer/keys",), "is not allowed"),
        ("https://issuer/keys2", ("https://issuer/keys",), "is not allowed"),
        ("ftp://issuer/keys", ("ftp://issuer/keys",), "only"),
        ("jndi:ldap://x", ("jndi:ldap://x",), "only"),
        ("file:///no/such/file", ("file:///no/such/file",), "No such file"),
        ("file:///etc/passwd", ("file:///etc/passwd",), "not a JSON Web Key Set"),
    ],
)
def test_keys_come_only_from_where_the_operator_allows(
    url: str, allowed: tuple[str, ...], reason: str
) -> None:
    """CVE-2025-27817."""

    async def scenario(world: World) -> None:
        with pytest.raises(KafkaError, match=reason) as raised:
            make_jwks(world, url, allowed)
        assert raised.value.code is ErrorCode.INVALID_CONFIG

    run(scenario)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(KEY_SET))

    async def scenario(world: World) -> None:
        made = make_jwks(world, file.as_uri(), (file.as_uri(),))
        assert [key.key_id for key in made.keys] == ["rsa", "ec"]
        file.write_text(json.dumps({"keys": [jwk(OTHER_KEY, kid="new")]}))
        await made.read()
        assert [key.key_id for key in made.keys] == ["new"]

    run(scenario)


async def _answer(text: bytes, scenario: Callable[[str], Any]) -> None:
    """Run a scenario with the URL of a web server that answers with a text."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await scenario(f"http://127.0.0.1:{port}/keys")


def test_a_url_is_fetched() -> None:
    body = json.dumps(KEY_SET).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def main(world: World) -> None:
        async def scenario(url: str) -> None:
            made = make_jwks(world, url, (url,))
            assert made.keys == ()
            await made.read()
            assert len(made.keys) == 2

        await _answer(head + body, scenario)

    run(main)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"nonsense\r\n\r\n",
    ],
)
def test_redirects_and_bad_answers_leave_the_keys_as_they_are(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        async def scenario(url: str) -> None:
            made = make_jwks(world, url, (url,))
            made.keys = keys()
            following = asyncio.create_task(made.follow())
            async with asyncio.timeout(10):
                while "cannot read the keys" not in caplog.text:
                    await asyncio.sleep(0.01)
            assert not following.done()
            following.cancel()
            assert len(made.keys) == 2

        await _answer(answer, scenario)

    with caplog.at_level(logging.WARNING):
        run(main)


# Server


def oauth_config(file: Path, **changes: str | None) -> NodeConfig:
    settings: dict[str, str | None] = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "penstock.sasl.oauthbearer.allowed.urls": file.as_uri(),
        **changes,
    }
    lines = [f"{name}={value}" for name, value in settings.items() if value is not None]
    text = sasl_server.PROPERTIES + "\n".join(lines)
    return read_node_config(text.encode(), "server.properties")


def test_a_server_takes_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(KEY_SET))
    config = oauth_config(file)
    monkeypatch.setattr(sasl_server, "configured", lambda _more: config)

    async def scenario(world: World) -> None:
        now_s = world.clock.now_ms() // 1000
        async with sasl_server.serving(world) as served:
            assert len(served.server.key_sets) == 1
            client = await served.connect()
            assert (await client.handshake("OAUTHBEARER")).mechanisms == ("OAUTHBEARER",)
            given = token(iat=now_s, exp=now_s + 60)
            done = await client.token(OAuthBearerClient(given).first())
            assert done.error_code == 0
            # The session ends with the token.
            assert 50_000 < done.session_lifetime_ms <= 60_000
            client.send(heartbeat(7))
            assert (await client.wait_responses(3))[-1] == 7
            assert served.seen.principals == [KafkaPrincipal("User", "alice")]
            bad = await served.connect()
            await bad.handshake("OAUTHBEARER")
            refused = await bad.token(OAuthBearerClient(token(OTHER_KEY)).first())
            assert refused.auth_bytes == b'{"status":"invalid_token"}'
            last = await bad.token(b"\x01")
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await bad.wait_lost()

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": None},
            "jwks.endpoint.url is not set",
        ),
        (
            {"listener.name.clients.oauthbearer.sasl.server.callback.handler.class": "com.Evil"},
            "Penstock loads no classes",
        ),
        ({"sasl.server.callback.handler.class": "com.Evil"}, "Penstock loads no classes"),
    ],
)
def test_settings_that_would_check_nothing_are_refused(
    tmp_path: Path, changes: dict[str, str | None], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        oauth_config(tmp_path / "keys.json", **changes)


def test_a_key_of_another_curve_is_passed_over() -> None:
    known = keys({"keys": [jwk(ec.generate_private_key(ec.SECP384R1())), jwk(EC_KEY)]})
    made = JwtChecker(lambda: known, ExpectedClaims(), lambda: NOW_S * 1000)
    assert made.check(token(EC_KEY, "ES256", None)).principal == "alice"


def test_a_server_that_sends_a_byte_now_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timeout of a socket is that of one read."""
    monkeypatch.setattr(jwks, "JWKS_TIMEOUT_S", 0.3)

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)

    async def main(world: World) -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
            with pytest.raises(OSError, match="took longer than"):
                await make_jwks(world, url, (url,)).read()

    run(main)
