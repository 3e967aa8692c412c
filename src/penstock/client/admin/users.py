"""SCRAM credentials of users: describe, set and remove them. Passwords are salted here, and never
sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.security.sasl.scram_credential import ScramMechanism
from penstock.security.sasl.scram_keys import salted_password

_SALT_BITS = 160


@dataclass(frozen=True, slots=True, order=True)
class ScramUser:
    """A user's credential for one mechanism, without its secrets."""

    name: str
    mechanism: ScramMechanism
    iterations: int


async def describe_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[ScramUser]:
    """Return the credentials of these users or, without names, of all users. A user without any is
    left out."""
    named = DescribeUserScramCredentialsRequest.User
    request = DescribeUserScramCredentialsRequest(
        users=None if names is None else tuple(named(name=name) for name in names)
    )

    async def attempt() -> list[ScramUser]:
        response = await cluster.call(request, DescribeUserScramCredentialsResponse)
        check(response.error_code, response.error_message or "the users cannot be described")
        found = []
        for result in response.results:
            if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                check(result.error_code, result.error_message or f"{result.user!r}")
            found += [
                ScramUser(result.user, ScramMechanism(info.mechanism), info.iterations)
                for info in result.credential_infos
                if info.mechanism in list(ScramMechanism)
            ]
        return sorted(found)

    return await cluster.retry(attempt)


async def set_user(
    cluster: Cluster, name: str, mechanism: ScramMechanism, password: str, iterations: int
) -> None:
    """Set a user's password for a mechanism. As Kafka's client it refuses an empty one: the
    broker gets the salted password, and cannot tell."""
    if not password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    salt = cluster.world.rng.randrange(2**_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
    salted = await cluster.world.offload.thread(
        salted_password, mechanism, password, salt, iterations
    )
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=(upsertion,)))


async def remove_user(cluster: Cluster, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """Remove a user's credentials for these mechanisms."""
    deletion = AlterUserScramCredentialsRequest.Deletion
    deletions = tuple(deletion(name=name, mechanism=mechanism) for mechanism in mechanisms)
    # A request may name a user once.
    for each in deletions:
        await _alter(cluster, AlterUserScramCredentialsRequest(deletions=(each,)))


async def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    async def attempt() -> None:
        response = await cluster.call(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            check(result.error_code, result.error_message or f"user {result.user!r} is unchanged")

    await cluster.retry(attempt)
