"""SCRAM against the example of RFC 7677, the client of kafka-python, and hostile peers."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import pytest
from kafka.net.sasl.scram import ScramClient as KafkaPythonScram

from penstock.limits import MAX_SCRAM_MESSAGE_BYTES
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_credential import ScramCredential, ScramMechanism
from penstock.security.sasl.scram_keys import credential_of, salted_password

SHA_256 = ScramMechanism.SHA_256
BOTH = pytest.mark.parametrize("mechanism", list(ScramMechanism))
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# RFC 7677, section 3.
RFC_7677 = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def credential(
    mechanism: ScramMechanism, password: str = "pencil", iterations: int = 4_096
) -> ScramCredential:
    salted = salted_password(mechanism, password, SALT, iterations)
    return credential_of(mechanism, salted, SALT, iterations)


def server(
    mechanism: ScramMechanism = SHA_256,
    nonce: str = SERVER_NONCE,
    user: str = "user",
    secret: bytes = b"s",
) -> ScramServer:
    stored = credential(mechanism)
    return ScramServer(mechanism, lambda name: stored if name == user else None, nonce, secret)


def final_of(challenge: bytes, first: bytes = RFC_7677[0], password: str = "pencil") -> bytes:
    """Return the final message of an honest client to any challenge."""
    client = ScramClient(SHA_256, "user", password, first.rpartition(b"r=")[2].decode())
    answer = client.evaluate(challenge)
    assert answer is not None
    return answer


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    side = server()
    first = client.first()
    challenge = side.evaluate(first)
    final = client.evaluate(challenge)
    assert final is not None
    signature = side.evaluate(final)
    assert (first, challenge, final, signature) == RFC_7677
    assert client.evaluate(signature) is None
    assert client.is_complete
    assert side.is_complete
    assert side.authorization_id == "user"


@BOTH
def test_the_client_of_kafka_python_authenticates(mechanism: ScramMechanism) -> None:
    client = KafkaPythonScram("user", "pencil", mechanism.sasl_name)
    side = server(mechanism)
    client.process_server_first_message(side.evaluate(client.first_message()))
    client.process_server_final_message(side.evaluate(client.final_message()))
    assert side.authorization_id == "user"


@BOTH
@pytest.mark.parametrize("user", ["a,b=c", "=2C", "ünï 名", "a=3D,"])
def test_names_are_escaped(mechanism: ScramMechanism, user: str) -> None:
    client = ScramClient(mechanism, user, "pencil", "abc")
    side = server(mechanism, user=user)
    final = client.evaluate(side.evaluate(client.first()))
    assert final is not None
    client.evaluate(side.evaluate(final))
    assert client.is_complete
    assert side.authorization_id == user


def test_a_wrong_password_is_refused() -> None:
    side = server()
    challenge = side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed, match="wrong password") as raised:
        side.evaluate(final_of(challenge, password="pencils"))
    assert raised.value.client_message is None
    assert not side.is_complete
    with pytest.raises(SaslFailed, match="not complete"):
        _ = side.authorization_id


def test_an_unknown_user_looks_like_a_wrong_password() -> None:
    """The challenge has a salt that is stable for the name, and the failure the same message."""
    first = b"n,,n=nobody,r=" + CLIENT_NONCE.encode()
    challenges = [server(nonce=nonce).evaluate(first) for nonce in ("one", "two")]
    salts = {challenge.partition(b",s=")[2] for challenge in challenges}
    assert len(salts) == 1
    assert salts.pop().endswith(b",i=4096")
    other = server().evaluate(b"n,,n=another,r=" + CLIENT_NONCE.encode())
    assert other.partition(b",s=")[2] != challenges[0].partition(b",s=")[2]
    side = server()
    side.evaluate(first)
    client = ScramClient(SHA_256, "nobody", "pencil", CLIENT_NONCE)
    final = client.evaluate(server().evaluate(first))
    assert final is not None
    with pytest.raises(SaslFailed, match="unknown user") as raised:
        side.evaluate(final)
    assert raised.value.client_message is None


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    """CVE-2024-56128: the server checks the nonce of the final message."""
    side = server(nonce="fresh")
    side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed, match="nonce"):
        side.evaluate(RFC_7677[2])


def test_a_proof_with_a_changed_nonce_is_refused() -> None:
    side = server()
    side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed, match="nonce"):
        side.evaluate(RFC_7677[2].replace(b"hNlF$k0", b"hNlF$k1"))


def test_an_exchange_that_failed_or_ended_takes_no_message() -> None:
    side = server()
    challenge = side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed):
        side.evaluate(final_of(challenge, password="other"))
    with pytest.raises(SaslFailed, match="after the end"):
        side.evaluate(RFC_7677[2])
    side = server()
    side.evaluate(RFC_7677[0])
    side.evaluate(RFC_7677[2])
    with pytest.raises(SaslFailed, match="after the end"):
        side.evaluate(RFC_7677[2])
    side = server()
    with pytest.raises(SaslFailed):
        side.evaluate(b"nonsense")
    with pytest.raises(SaslFailed, match="after the end"):
        side.evaluate(RFC_7677[0])


@pytest.mark.parametrize("number", range(1, len(RFC_7677[2])))
def test_a_truncated_final_message_is_refused(number: int) -> None:
    side = server()
    side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed):
        side.evaluate(RFC_7677[2][:-number])
    assert not side.is_complete


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"y,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=user,r=abc,m=must",
        b"n,,n=user,r=a\xffc",
        b"n,,n=user,r=a c",
        b"n,a=other,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * MAX_SCRAM_MESSAGE_BYTES,
    ],
)
def test_a_bad_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslFailed):
        server().evaluate(message)


def test_the_authorization_id_may_equal_the_user() -> None:
    assert server().evaluate(b"n,a=user,n=user,r=abc").startswith(b"r=abc")


def test_the_channel_binding_must_repeat_the_header() -> None:
    side = server()
    side.evaluate(RFC_7677[0])
    with pytest.raises(SaslFailed, match="channel binding"):
        side.evaluate(RFC_7677[2].replace(b"c=biws", b"c=eSws"))


def test_a_delegation_token_is_not_looked_up_as_a_user() -> None:
    side = server()
    challenge = side.evaluate(RFC_7677[0] + b",tokenauth=true")
    assert challenge.partition(b",s=")[2] != RFC_7677[1].partition(b",s=")[2]


def test_a_credential_with_few_iterations_is_refused() -> None:
    weak = credential(SHA_256, iterations=4_095)
    with pytest.raises(SaslFailed, match="4095 iterations"):
        ScramServer(SHA_256, lambda _name: weak, "n", b"s").evaluate(RFC_7677[0])


def test_secrets_are_not_in_the_text_of_a_credential() -> None:
    assert repr(credential(SHA_256)) == "ScramCredential()"


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (RFC_7677[1].replace(b"rOpr", b"other"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "nonce"),
        (RFC_7677[1].replace(b"i=4096", b"i=4095"), "iterations"),
        (RFC_7677[1].replace(b"i=4096", b"i=999999999"), "iterations"),
        (RFC_7677[1].replace(b"i=4096", b"i=9999999999999"), "malformed"),
        (RFC_7677[1].replace(b"i=4096", b"i=-1"), "malformed"),
        (RFC_7677[1].replace(b"gQ==", b"g==="), "malformed"),
        (b"", "malformed"),
    ],
)
def test_a_client_refuses_a_hostile_challenge(challenge: bytes, reason: str) -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    with pytest.raises(SaslFailed, match=reason):
        client.evaluate(challenge)


@pytest.mark.parametrize(
    "signature", [b"v=AAAA", b"e=invalid-proof", b"", RFC_7677[3].replace(b"6", b"7")]
)
def test_a_client_refuses_a_server_that_does_not_know_the_credential(signature: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client.evaluate(RFC_7677[1])
    with pytest.raises(SaslFailed):
        client.evaluate(signature)
    assert not client.is_complete


def _mutations(rng: random.Random) -> list[Callable[[bytes], bytes]]:
    def flip(message: bytes) -> bytes:
        at = rng.randrange(len(message))
        return message[:at] + bytes([message[at] ^ 1 << rng.randrange(8)]) + message[at + 1 :]

    def cut(message: bytes) -> bytes:
        return message[: rng.randrange(len(message))]

    def repeat(message: bytes) -> bytes:
        at = rng.randrange(len(message))
        return message[:at] + message[rng.randrange(len(message)) :] + message[at:]

    return [flip, cut, repeat]


def test_mutated_messages_raise_nothing_but_sasl_failed() -> None:
    rng = random.Random(18)
    mutations = _mutations(rng)
    stored = credential(SHA_256)
    for number in range(5_000):
        side = ScramServer(SHA_256, lambda _name: stored, SERVER_NONCE, b"s")
        mutate = rng.choice(mutations)
        first, final = RFC_7677[0], RFC_7677[2]
        try:
            if number % 2:
                mutated = mutate(first)
                side.evaluate(mutated)
                continue
            side.evaluate(first)
            mutated = mutate(final)
            side.evaluate(mutated)
        except SaslFailed:
            continue
        assert mutated == final, "a mutated proof was accepted"
