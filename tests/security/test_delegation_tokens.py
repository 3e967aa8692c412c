"""Delegation tokens in the metadata: secrets, records, and decisions of the controller."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from penstock.controller import delegation_tokens as decisions
from penstock.controller.decision import ControllerResult
from penstock.controller.delegation_tokens import TokenContext
from penstock.errors import ErrorCode, InvariantBroken, KafkaError
from penstock.handlers import describe_delegation_token
from penstock.handlers.context import Exclusive
from penstock.limits import (
    DESCRIBED_TOKENS_A_TURN,
    EXPIRED_TOKENS_A_TURN,
    MAX_DELEGATION_TOKENS,
    MAX_TOKEN_RENEWERS,
)
from penstock.metadata.delegation_tokens_delta import token_record
from penstock.metadata.image import MetadataImage
from penstock.node.delegation_tokens import DelegationTokens
from penstock.protocol.internal.metadata_security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.security.delegation_tokens import (
    DelegationToken,
    TokensByHmac,
    token_credential,
    token_hmac,
    token_password,
)
from penstock.security.principals import KafkaPrincipal
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_credential import ScramCredential, ScramMechanism
from penstock.world.sim import Simulation
from tests.config.node_examples import COMBINED, read
from tests.controller.clusters import context
from tests.security.authorized_node import ROOT, AuthorizedNode, run

KEY = b"the secret key"
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ALICE, BOB, EVE, DAVE = (KafkaPrincipal("User", name) for name in ("alice", "bob", "eve", "dave"))
EMPTY = MetadataImage.empty()

Renewer = CreateDelegationTokenRequest.Renewer


class Tokens:
    """The controller's tokens: each decision is replayed."""

    def __init__(self, key: bytes | None = KEY) -> None:
        self.image = EMPTY
        self.now_ms = NOW_MS
        self._by_hmac = None if key is None else TokensByHmac(key)
        self._context = context()

    def decide(
        self, decide: Callable[..., ControllerResult[Any]], request: object, who: KafkaPrincipal
    ) -> Any:
        tokens = TokenContext(who, self.now_ms, self._by_hmac)
        result = decide(self.image, request, self._context, tokens)
        self.image = self.image.replay(result.records, self.image.offset + 1)[0]
        return result.response

    def create(self, who: KafkaPrincipal = ALICE, **fields: Any) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
        response: CreateDelegationTokenResponse = self.decide(
            decisions.create_delegation_token, request, who
        )
        return response

    def renew(self, secret: bytes, period_ms: int = -1, who: KafkaPrincipal = ALICE) -> int:
        request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
        response = self.decide(decisions.renew_delegation_token, request, who)
        return int(response.expiry_timestamp_ms)

    def expire(self, secret: bytes, period_ms: int = -1, who: KafkaPrincipal = ALICE) -> int:
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
        response = self.decide(decisions.expire_delegation_token, request, who)
        return int(response.expiry_timestamp_ms)


def token(token_id: str = "id", expires_ms: int = NOW_MS + DAY_MS, **more: Any) -> DelegationToken:
    fields = {"owner": ALICE, "requester": ALICE, "renewers": (BOB,), **more}
    return DelegationToken(
        token_id, issued_ms=NOW_MS, max_ms=NOW_MS + 7 * DAY_MS, expires_ms=expires_ms, **fields
    )


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


# Secrets


def test_the_secret_is_that_of_kafka() -> None:
    expected = hmac.new(KEY, b"id", hashlib.sha512).digest()
    assert token_hmac(KEY, "id") == expected
    assert token_password(expected) == base64.b64encode(expected).decode()


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_bearer_proves_the_hmac_as_its_password(mechanism: ScramMechanism) -> None:
    credential = token_credential(mechanism, KEY, "id")
    server = ScramServer(mechanism, lambda _user: credential, "server", b"s")
    client = ScramClient(mechanism, "id", token_password(token_hmac(KEY, "id")), "client")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None
    client.evaluate(server.evaluate(final))
    assert client.is_complete
    assert token_credential(mechanism, KEY, "id") == credential
    assert token_credential(mechanism, KEY, "other").salt != credential.salt


def test_no_text_of_an_object_has_a_secret() -> None:
    tokens = Tokens()
    created = tokens.create()
    by_hmac = TokensByHmac(KEY)
    assert by_hmac.find(tokens.image.delegation_tokens, bytes(created.hmac)) is not None
    renewal = RenewDelegationTokenRequest(hmac=created.hmac)
    parts = TokenContext(ALICE, NOW_MS, by_hmac)
    for thing in (created, by_hmac, renewal, parts, tokens.image):
        assert KEY.decode() not in repr(thing)
        assert repr(bytes(created.hmac))[2:20] not in repr(thing)
    assert "hmac=<64 bytes>" in repr(created)


# Records


def test_a_snapshot_has_the_tokens() -> None:
    records = [token_record(token("one")), token_record(token("two", renewers=()))]
    image, _delta = EMPTY.replay(records, 1)
    assert image.delegation_tokens == {"one": token("one"), "two": token("two", renewers=())}
    again, _delta = EMPTY.replay(image.records(), image.offset)
    assert again == image
    assert [
        record for record in image.records() if isinstance(record, DelegationTokenRecord)
    ] == records


def test_records_replace_and_remove_tokens() -> None:
    image, _delta = EMPTY.replay([token_record(token())], 0)
    later, _delta = image.replay([token_record(token(expires_ms=NOW_MS))], 1)
    assert later.delegation_tokens["id"].expires_ms == NOW_MS
    assert image.delegation_tokens["id"].expires_ms == NOW_MS + DAY_MS
    # Kafka's controller may write a removal twice.
    removals = [RemoveDelegationTokenRecord(token_id="id")] * 2
    assert later.replay(removals, 3)[0].delegation_tokens == {}


def test_a_record_without_a_principal_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="no principal"):
        EMPTY.replay([DelegationTokenRecord(token_id="id", owner="alice")], 0)


# Decisions


def test_a_created_token_has_the_lifetimes_of_the_settings() -> None:
    tokens = Tokens()
    created = tokens.create(renewers=(Renewer(principal_type="User", principal_name="bob"),))
    assert created.error_code == 0
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "alice")
    assert created.issue_timestamp_ms == NOW_MS
    assert created.expiry_timestamp_ms == NOW_MS + DAY_MS
    assert created.max_timestamp_ms == NOW_MS + 7 * DAY_MS
    assert created.hmac == token_hmac(KEY, created.token_id)
    assert tokens.image.delegation_tokens[created.token_id] == token(created.token_id)


@pytest.mark.parametrize(
    ("max_lifetime_ms", "lives_ms", "expires_ms"),
    [
        (0, 7 * DAY_MS, DAY_MS),
        (5_000, 5_000, 5_000),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (2**63 - 1, 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_request_may_shorten_the_lifetime(
    max_lifetime_ms: int, lives_ms: int, expires_ms: int
) -> None:
    created = Tokens().create(max_lifetime_ms=max_lifetime_ms)
    assert created.max_timestamp_ms - NOW_MS == lives_ms
    assert created.expiry_timestamp_ms - NOW_MS == expires_ms


def test_a_token_of_another_owner_has_its_requester() -> None:
    tokens = Tokens()
    created = tokens.create(BOB, owner_principal_type="User", owner_principal_name="alice")
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "bob")
    found = tokens.image.delegation_tokens[created.token_id]
    assert (found.owner, found.requester) == (ALICE, BOB)
    assert not found.belongs_to(BOB)
    assert found.is_shown_to(BOB)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (
            {"renewers": (Renewer(principal_type="Group", principal_name="x"),)},
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        (
            {"owner_principal_type": "Group", "owner_principal_name": "alice"},
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        (
            {"owner_principal_type": None, "owner_principal_name": "alice"},
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        (
            {"renewers": (Renewer(principal_type="User"),) * (MAX_TOKEN_RENEWERS + 1)},
            ErrorCode.POLICY_VIOLATION,
        ),
        (
            {"renewers": (Renewer(principal_type="User", principal_name="x" * 5_000),)},
            ErrorCode.POLICY_VIOLATION,
        ),
    ],
)
def test_a_token_that_cannot_be_created(fields: dict[str, Any], code: ErrorCode) -> None:
    assert refusal(lambda: Tokens().create(**fields)) is code


def test_owners_and_the_cluster_have_a_bounded_number_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "MAX_DELEGATION_TOKENS_PER_OWNER", 2)
    monkeypatch.setattr(decisions, "MAX_DELEGATION_TOKENS", 3)
    tokens = Tokens()
    tokens.create()
    tokens.create()
    assert refusal(tokens.create) is ErrorCode.POLICY_VIOLATION
    tokens.create(BOB)
    assert refusal(lambda: tokens.create(EVE)) is ErrorCode.POLICY_VIOLATION


def test_without_a_secret_key_there_are_no_tokens() -> None:
    tokens = Tokens(key=None)
    for call in (tokens.create, lambda: tokens.renew(b"x"), lambda: tokens.expire(b"x")):
        assert refusal(call) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_owner_and_renewers_renew_a_token_up_to_the_end_of_its_life() -> None:
    tokens = Tokens()
    renewers = (Renewer(principal_type="User", principal_name="bob"),)
    secret = bytes(tokens.create(renewers=renewers).hmac)
    tokens.now_ms += 1_000
    assert tokens.renew(secret) == tokens.now_ms + DAY_MS
    assert tokens.renew(secret, 5_000, BOB) == tokens.now_ms + 5_000
    assert tokens.renew(secret, 30 * DAY_MS) == tokens.now_ms + DAY_MS
    assert (
        refusal(lambda: tokens.renew(secret, who=EVE)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )
    assert refusal(lambda: tokens.renew(b"other")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for _ in range(7):
        tokens.now_ms += DAY_MS - 1_000
        expires_ms = tokens.renew(secret)
    assert expires_ms == NOW_MS + 7 * DAY_MS
    tokens.now_ms = expires_ms + 1
    assert refusal(lambda: tokens.renew(secret)) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_is_expired_after_a_period_or_removed() -> None:
    tokens = Tokens()
    secret = bytes(tokens.create().hmac)
    assert (
        refusal(lambda: tokens.expire(secret, who=EVE)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )
    assert tokens.expire(secret, 30 * DAY_MS) == NOW_MS + 7 * DAY_MS
    assert tokens.expire(secret, 0) == NOW_MS
    tokens.now_ms += 1
    assert refusal(lambda: tokens.expire(secret, 0)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(secret, -1) == tokens.now_ms
    assert tokens.image.delegation_tokens == {}
    assert refusal(lambda: tokens.expire(secret)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_expired_tokens_are_removed_in_bounded_parts() -> None:
    count = EXPIRED_TOKENS_A_TURN + 10
    records = [token_record(token(str(number), NOW_MS - 1)) for number in range(count)]
    image, _delta = EMPTY.replay([*records, token_record(token("valid", NOW_MS))], 0)
    sizes = []
    while True:
        result = decisions.remove_expired_tokens(image, NOW_MS)
        sizes.append(len(result.response))
        if not result.response:
            break
        image, _delta = image.replay(result.records, image.offset + 1)
    assert sizes == [EXPIRED_TOKENS_A_TURN, 10, 0]
    assert list(image.delegation_tokens) == ["valid"]


def test_tokens_are_found_by_hmac_in_the_image_that_is_asked() -> None:
    by_hmac = TokensByHmac(KEY)
    first, _delta = EMPTY.replay([token_record(token("one")), token_record(token("two"))], 0)
    second, _delta = first.replay([RemoveDelegationTokenRecord(token_id="one")], 1)
    one, two = token_hmac(KEY, "one"), token_hmac(KEY, "two")
    for image, found in ((first, "one"), (second, None), (first, "one")):
        token_found = by_hmac.find(image.delegation_tokens, one)
        assert (None if token_found is None else token_found.token_id) == found
        assert by_hmac.find(image.delegation_tokens, two) == token("two")


# Logins


def test_a_node_logs_bearers_in_until_the_token_expires() -> None:
    clock = Simulation(seed=1).node("node").clock
    now_ms = clock.now_ms()
    valid = token("valid", now_ms + 1_000)
    records = [token_record(valid), token_record(token("expired", now_ms - 1))]
    image, _delta = EMPTY.replay(records, 0)
    config = read({**COMBINED, "delegation.token.secret.key": KEY.decode()})
    tokens = DelegationTokens(config, clock, lambda: image)
    login = tokens.find(ScramMechanism.SHA_512, "valid")
    assert login is not None
    assert (login.owner, login.expires_ms) == ("alice", now_ms + 1_000)
    assert login.credential == token_credential(ScramMechanism.SHA_512, KEY, "valid")
    assert tokens.find(ScramMechanism.SHA_512, "expired") is None
    assert tokens.find(ScramMechanism.SHA_512, "unknown") is None
    without_key = DelegationTokens(read(COMBINED), clock, lambda: image)
    assert without_key.find(ScramMechanism.SHA_512, "valid") is None


def test_the_credential_of_each_token_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client names the token before it proves that it knows the secret, and a credential takes
    some milliseconds of the event loop."""
    clock = Simulation(seed=1).node("node").clock
    ids = [f"token-{number}" for number in range(MAX_DELEGATION_TOKENS)]
    image, _delta = EMPTY.replay(
        [token_record(token(token_id, clock.now_ms() + 1_000)) for token_id in ids], 0
    )
    derived: list[str] = []
    credential = token_credential(ScramMechanism.SHA_512, KEY, "any")

    def derive(_mechanism: ScramMechanism, _key: bytes, token_id: str) -> ScramCredential:
        derived.append(token_id)
        return credential

    monkeypatch.setattr("penstock.node.delegation_tokens.token_credential", derive)
    config = read({**COMBINED, "delegation.token.secret.key": KEY.decode()})
    tokens = DelegationTokens(config, clock, lambda: image)
    for mechanism in [*ScramMechanism] * 2:
        for token_id in ids:
            assert tokens.find(mechanism, token_id) is not None
    assert len(derived) == 2 * len(ids)


# Descriptions


@pytest.mark.parametrize(
    ("principal", "is_shown"),
    [(ALICE, True), (BOB, True), (EVE, True), (ROOT, True), (DAVE, False)],
)
def test_owner_renewer_and_requester_see_a_token(
    monkeypatch: pytest.MonkeyPatch, principal: KafkaPrincipal, is_shown: bool
) -> None:
    """As in Kafka the one who created a token for another owner finds it again, and the filter by
    owners finds it too."""
    monkeypatch.setattr(describe_delegation_token, "is_allowed", lambda *_: True)
    named = DescribeDelegationTokenRequest.Owner

    async def main(node: AuthorizedNode) -> None:
        record = token_record(token("t", requester=EVE))
        node.image = node.image.replay([record], node.image.offset + 1)[0]
        for owners in (None, (named(principal_type="User", principal_name="eve"),)):
            request = DescribeDelegationTokenRequest(owners=owners)
            response = await node.answer(41, 3, request, principal)
            assert [each.token_id for each in response.tokens] == ["t"] * is_shown

    run(main, **{"delegation.token.secret.key": KEY.decode()})


def test_many_tokens_are_described_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_delegation_token, "is_allowed", lambda *_: True)
    count = 4 * DESCRIBED_TOKENS_A_TURN
    owners = (ROOT, KafkaPrincipal("User", "other"))
    records = [
        token_record(token(str(number), owner=owners[number % 2], renewers=()))
        for number in range(count)
    ]

    async def main(node: AuthorizedNode) -> None:
        node.image = node.image.replay(records, node.image.offset + 1)[0]
        request = DescribeDelegationTokenRequest(owners=None)
        returned = node.call(41, 3, request, ROOT)
        assert isinstance(returned, Exclusive)
        await returned
        running = asyncio.ensure_future(node.answer(41, 3, request, ROOT))
        turns = 0
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 4
        assert [each.token_id for each in running.result().tokens] == list(map(str, range(count)))
        # Somebody else sees the own tokens only.
        of_other = await node.answer(41, 1, request, owners[1])
        assert len(of_other.tokens) == count // 2
        assert of_other.tokens[0].hmac == token_hmac(KEY, "1")
        none = await node.answer(41, 3, DescribeDelegationTokenRequest(owners=()), ROOT)
        assert none.tokens == ()

    run(main, **{"delegation.token.secret.key": KEY.decode()})
