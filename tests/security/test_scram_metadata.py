"""SCRAM credentials in the metadata: records, decisions of the controller, descriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.controller.features import bootstrap_records
from penstock.controller.scram import alter_user_scram_credentials
from penstock.errors import ErrorCode, InvariantBroken, KafkaError
from penstock.handlers import load
from penstock.handlers.context import ConnectionHandle, Exclusive, RequestContext
from penstock.handlers.loggers import TRACE
from penstock.limits import DESCRIBED_SCRAM_USERS_A_TURN, MAX_SCRAM_CREDENTIALS_PER_REQUEST
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.bootstrap_file import (
    BOOTSTRAP_CHECKPOINT,
    bootstrap_content,
    read_bootstrap,
)
from penstock.node.scram_credentials import ScramCredentials
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.internal.metadata_security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_argument import ScramArgumentError, parse_add_scram
from penstock.security.sasl.scram_credential import ScramMechanism, ScramShape
from penstock.security.sasl.scram_keys import credential_of, salted_password
from penstock.security.sasl.scram_messages import parse_server_first
from penstock.server.request_log import audited, log_request
from penstock.world.real import RealDisk
from penstock.world.sim import Simulation
from tests.config.node_examples import COMBINED, read
from tests.controller.clusters import context

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion
User = DescribeUserScramCredentialsRequest.User

SHA_256, SHA_512 = ScramMechanism
SALT = b"0123456789"
EMPTY = MetadataImage.empty()


def upsertion(
    name: str = "alice", mechanism: int = SHA_256, iterations: int = 4_096, **more: Any
) -> Upsertion:
    salted = more.pop("salted_password", b"p" * (32 if mechanism == SHA_256 else 64))
    return Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=more.pop("salt", SALT),
        salted_password=salted,
    )


def altered(
    image: MetadataImage, *changes: Deletion | Upsertion
) -> tuple[MetadataImage, list[tuple[str, int, str | None]]]:
    """Return the image after a request, and the results."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(change for change in changes if isinstance(change, Deletion)),
        upsertions=tuple(change for change in changes if isinstance(change, Upsertion)),
    )
    result = alter_user_scram_credentials(image, request, context())
    after, _delta = image.replay(result.records, image.offset + len(result.records))
    return after, [(one.user, one.error_code, one.error_message) for one in result.response.results]


def test_a_credential_that_is_set_lets_its_user_in() -> None:
    salted = salted_password(SHA_512, "secret", SALT, 8_192)
    image, results = altered(EMPTY, upsertion("alice", SHA_512, 8_192, salted_password=salted))
    assert results == [("alice", 0, None)]
    server = ScramServer(
        SHA_512, lambda name: image.scram_credentials.get((SHA_512, name)), "server", b"s"
    )
    client = ScramClient(SHA_512, "alice", "secret", "client")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None
    client.evaluate(server.evaluate(final))
    assert client.is_complete


def test_a_snapshot_has_the_credentials() -> None:
    image, _results = altered(EMPTY, upsertion("alice"), upsertion("bob", SHA_512))
    again, _delta = EMPTY.replay(image.records(), image.offset)
    assert again.scram_credentials == image.scram_credentials
    assert list(again.scram_credentials) == [(SHA_256, "alice"), (SHA_512, "bob")]


def test_a_credential_of_a_mechanism_is_replaced_and_removed_alone() -> None:
    image, _results = altered(EMPTY, upsertion("alice"))
    image, _results = altered(image, upsertion("alice", SHA_512))
    image, _results = altered(image, upsertion("alice", iterations=5_000))
    assert image.scram_credentials[SHA_256, "alice"].iterations == 5_000
    image, results = altered(image, Deletion(name="alice", mechanism=SHA_256))
    assert results == [("alice", 0, None)]
    assert list(image.scram_credentials) == [(SHA_512, "alice")]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            Deletion(name="nobody", mechanism=1),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            Deletion(name="nobody", mechanism=0),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            upsertion("", 1),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Username must not be empty",
        ),
        (
            upsertion("alice", 3, salted_password=b"p" * 32),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            upsertion(iterations=4_095),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too few iterations",
        ),
        (
            upsertion(iterations=16_385),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too many iterations",
        ),
        (
            upsertion(salt=b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salt must have 1 to 1024 bytes",
        ),
        (
            upsertion(salted_password=b"short"),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salted password of SCRAM-SHA-256 must have 32 bytes",
        ),
        (
            upsertion("a\0b"),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Username must have at most 1000 characters, without NUL",
        ),
    ],
)
def test_one_user_is_refused_and_another_one_is_not(
    change: Deletion | Upsertion, code: ErrorCode, message: str
) -> None:
    image, results = altered(EMPTY, change, upsertion("bob"))
    assert results == [(change.name, code, message), ("bob", 0, None)]
    assert list(image.scram_credentials) == [(SHA_256, "bob")]


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion("alice"), upsertion("alice", SHA_512)),
        (Deletion(name="alice", mechanism=1), upsertion("alice")),
        (Deletion(name="alice", mechanism=1), Deletion(name="alice", mechanism=2)),
        (upsertion("alice"), upsertion("alice"), upsertion("alice")),
    ],
)
def test_a_user_is_altered_once_in_a_request(changes: tuple[Deletion | Upsertion, ...]) -> None:
    image, _results = altered(EMPTY, upsertion("alice", iterations=5_000))
    after, results = altered(image, *changes)
    assert results == [
        (
            "alice",
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    ]
    assert after.scram_credentials == image.scram_credentials


def test_a_request_with_too_many_users_is_refused() -> None:
    changes = [upsertion(f"u{number}") for number in range(MAX_SCRAM_CREDENTIALS_PER_REQUEST + 1)]
    with pytest.raises(KafkaError, match="more than 1000"):
        altered(EMPTY, *changes)


def test_removing_what_is_not_there_breaks_an_invariant() -> None:
    with pytest.raises(InvariantBroken):
        EMPTY.replay([RemoveUserScramCredentialRecord(name="alice", mechanism=1)], 0)


def described(image: MetadataImage, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=tuple(User(name=name) for name in names))
    parts = SimpleNamespace(metadata=SimpleNamespace(image=image))
    response: Any = load(50)(parts, request, None)
    return [
        (
            one.user,
            one.error_code,
            [(info.mechanism, info.iterations) for info in one.credential_infos],
        )
        for one in response.results
    ]


def test_mechanisms_and_iterations_are_described() -> None:
    image, _results = altered(EMPTY, upsertion("bob"), upsertion("alice", SHA_512, 8_192))
    image, _results = altered(image, upsertion("alice", SHA_256))
    assert described(image) == [
        ("bob", 0, [(1, 4_096)]),
        ("alice", 0, [(1, 4_096), (2, 8_192)]),
    ]
    assert described(image, "alice", "nobody", "bob", "bob") == [
        ("alice", 0, [(1, 4_096), (2, 8_192)]),
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("bob", ErrorCode.DUPLICATE_RESOURCE, []),
    ]


def test_no_log_has_a_salted_password_or_a_token(caplog: pytest.LogCaptureFixture) -> None:
    request = AlterUserScramCredentialsRequest(
        upsertions=(upsertion(salted_password=b"secret" * 5 + b"se", salt=b"salt" * 4),)
    )
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    made = RequestContext(51, 0, 1, "c", "L", "h", 1, "1.2.3.4:5", 0.0, ConnectionHandle())
    with caplog.at_level(TRACE):
        log_request(request, made, 10)
        log_request(token, made._replace(api_key=36), 10)
        audited(lambda _parts, _request, _context: AlterUserScramCredentialsResponse())(
            None, request, made
        )
        with pytest.raises(KafkaError):
            audited(_refuse)(None, request, made)
    text = caplog.text
    assert "'alice'" in text
    assert "UNACCEPTABLE_CREDENTIAL" in text
    assert "secret" not in text
    assert "salt" not in text.replace("salt=", "").replace("salted_password=", "")
    assert logging.getLogger("penstock.audit").name in text


def _refuse(_parts: Any, _request: Any, _context: Any) -> object:
    raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "secret")


def test_the_bootstrap_checkpoint_has_the_credentials(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path)
    record = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4_096
    )
    assert read_bootstrap(disk, directory) == ()
    disk.replace(f"{directory}/{BOOTSTRAP_CHECKPOINT}", bootstrap_content([record]))
    assert read_bootstrap(disk, directory) == (record,)


def test_a_damaged_bootstrap_checkpoint_is_refused(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path)
    content = bytearray(bootstrap_content([UserScramCredentialRecord(name="alice", mechanism=1)]))
    content[-90] ^= 1
    disk.replace(f"{directory}/{BOOTSTRAP_CHECKPOINT}", bytes(content))
    with pytest.raises(KafkaError, match="damaged"):
        read_bootstrap(disk, directory)


def test_add_scram_with_a_password() -> None:
    mechanism, name, credential = parse_add_scram(
        'SCRAM-SHA-512=[name="alice",password=a=b,iterations=5000]', lambda: SALT
    )
    salted = salted_password(SHA_512, "a=b", SALT, 5_000)
    assert (mechanism, name) == (SHA_512, "alice")
    assert credential == credential_of(SHA_512, salted, SALT, 5_000)


def test_add_scram_with_kafkas_example_of_a_salted_password() -> None:
    """From the documentation of kafka-storage.sh (KIP-900)."""
    _mechanism, _name, credential = parse_add_scram(
        'SCRAM-SHA-256=[name=alice,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Nmk=",'
        'saltedpassword="mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE=",iterations=8192]',
        bytes,
    )
    assert credential.iterations == 8_192
    assert credential.salt == b"1lv4pdnw4fwq7notcxm0y6i"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alice=secret", "not in the form"),
        ("MD5=[name=a,password=secret]", "mechanism is not supported"),
        ("SCRAM-SHA-256=[password=secret]", "'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "'salt'"),
        ("SCRAM-SHA-256=[name=a,salt=??,password=secret]", "decode the given salt"),
        ("SCRAM-SHA-256=[name=a,salt=c2Vj,saltedpassword=c2VjcmV0]", "32 bytes"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "'iterations'"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=many]", "'iterations'"),
        ("SCRAM-SHA-256=[name=a,password=sec,ret]", "Unknown SCRAM"),
    ],
)
def test_add_scram_refuses_without_secrets(text: str, reason: str) -> None:
    with pytest.raises(ScramArgumentError, match=reason) as raised:
        parse_add_scram(text, lambda: SALT)
    assert "secret" not in str(raised.value)
    assert "c2Vj" not in str(raised.value)


def test_many_users_are_described_in_turns() -> None:
    count = 3 * DESCRIBED_SCRAM_USERS_A_TURN
    records = [
        UserScramCredentialRecord(
            name=f"user-{number}",
            mechanism=mechanism,
            salt=SALT,
            stored_key=b"s",
            server_key=b"k",
            iterations=4_096,
        )
        for number in range(count)
        for mechanism in ScramMechanism
    ]
    image, _delta = EMPTY.replay(records, 0)
    parts = SimpleNamespace(metadata=SimpleNamespace(image=image))

    async def main() -> tuple[Any, int]:
        returned: Any = load(50)(parts, DescribeUserScramCredentialsRequest(users=None), None)
        assert isinstance(returned, Exclusive)
        running = asyncio.ensure_future(_value(returned))
        turns = 0
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        return running.result(), turns

    response, turns = asyncio.run(main())
    # The names of all credentials, then the users.
    assert turns >= 2 * 3 + 3
    decoded = decode(type(response), 0, encode_bytes(response, 0))
    assert [each.user for each in decoded.results] == [f"user-{number}" for number in range(count)]
    assert all(
        [(info.mechanism, info.iterations) for info in each.credential_infos]
        == [(1, 4_096), (2, 4_096)]
        for each in decoded.results
    )


async def _value(response: Exclusive[Any]) -> Any:
    return await response


# What clients can tell of users that do not exist


def credentials_of(image: MetadataImage, seed: int, **settings: str) -> ScramCredentials:
    world = Simulation(seed=seed).node("node").world
    return ScramCredentials(world, read({**COMBINED, **settings}), lambda: image, ())


def challenge(credentials: ScramCredentials, user: str, mechanism: ScramMechanism = SHA_256) -> Any:
    """Return what a node sends to a client that gives this name."""
    server = ScramServer(
        mechanism,
        lambda name: credentials.find(mechanism, name),
        "server",
        credentials.secret,
        shapes=credentials.shapes(mechanism),
    )
    client = ScramClient(mechanism, user, "guess", "client")
    first = parse_server_first(server.evaluate(client.first()))
    return first.salt, first.iterations


def with_users(*upsertions: Upsertion) -> MetadataImage:
    image, _delta = EMPTY.replay(bootstrap_records(context()), 0)
    return altered(image, *upsertions)[0]


@pytest.mark.parametrize("key", [None, "the key"])
def test_an_unknown_user_has_the_same_salt_on_all_nodes_and_after_a_restart(
    key: str | None,
) -> None:
    """The seed stands for another node, or for another start."""
    settings = {} if key is None else {"delegation.token.secret.key": key}
    image = with_users(upsertion("alice"))
    first, second = (credentials_of(image, seed, **settings) for seed in (1, 2))
    for mechanism in ScramMechanism:
        assert challenge(first, "nobody", mechanism) == challenge(second, "nobody", mechanism)
    assert challenge(first, "nobody") != challenge(first, "nobody-else")
    # Other users come and go, and those that do not exist keep their salts.
    image, _results = altered(image, upsertion("bob"))
    assert challenge(credentials_of(image, 1, **settings), "nobody") == challenge(first, "nobody")
    without_credentials = credentials_of(EMPTY, 1).secret, credentials_of(EMPTY, 2).secret
    assert without_credentials[0] != without_credentials[1]


def test_an_unknown_user_looks_like_the_others() -> None:
    """The salts of Kafka's admin client are text of 25 or 26 characters."""
    salts = [b"0a1b2c3d4e5f6g7h8i9j0k1l2", b"0a1b2c3d4e5f6g7h8i9j0k1l2m"]
    image = with_users(
        *(
            upsertion(f"user-{number}", iterations=8_192, salt=salts[number % 4 == 0])
            for number in range(40)
        )
    )
    credentials = credentials_of(image, 1)
    found = [challenge(credentials, f"nobody-{number}") for number in range(200)]
    assert {iterations for _salt, iterations in found} == {8_192}
    assert all(salt.isalnum() and salt.islower() for salt, _iterations in found)
    lengths = Counter(len(salt) for salt, _iterations in found)
    assert set(lengths) == {25, 26}
    assert 100 < lengths[25] < 190
    # Without users of a mechanism there is nothing to look like.
    assert challenge(credentials, "nobody", SHA_512)[1] == 4_096


def test_shapes_are_counted_as_users_change() -> None:
    image = with_users(upsertion("alice"), upsertion("bob"))
    shape = ScramShape(4_096, len(SALT), is_text=True)
    assert image.scram_shapes[SHA_256] == {shape: 2}
    image, _results = altered(image, upsertion("bob", iterations=5_000))
    assert image.scram_shapes[SHA_256] == {shape: 1, shape._replace(iterations=5_000): 1}
    image, _results = altered(image, Deletion(name="alice", mechanism=SHA_256))
    assert image.scram_shapes[SHA_256] == {shape._replace(iterations=5_000): 1}
    again, _delta = EMPTY.replay(image.records(), image.offset)
    assert again.scram_shapes == image.scram_shapes
