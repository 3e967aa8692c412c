"""Which version of an API to speak: the highest that both sides know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.apis import Api
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.schema import Versions


def offered_by(api_keys: Iterable[ApiVersionsResponse.ApiKey]) -> dict[int, Versions]:
    """What a broker says it serves. Keys that we do not know are kept: nobody asks for them."""
    return {one.api_key: Versions(one.min_version, one.max_version) for one in api_keys}


def choose_version(api: Api, offered: Mapping[int, Versions], ceiling: int | None = None) -> int:
    """KafkaError UNSUPPORTED_VERSION where there is none in common. A version that Kafka calls
    unstable is never chosen."""
    theirs = offered.get(api.key)
    if theirs is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not serve {api.name}")
    ours = Versions(api.versions.first, api.versions.last - api.newest_unstable)
    highest = min(ours.last, theirs.last, ours.last if ceiling is None else ceiling)
    if highest < max(ours.first, theirs.first):
        reason = f"the broker serves {api.name} in versions {theirs}, and this client speaks {ours}"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            reason if ceiling is None else f"{reason}, here at most {ceiling}",
        )
    return highest
