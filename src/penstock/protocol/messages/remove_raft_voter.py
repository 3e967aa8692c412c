"""RemoveRaftVoter: removes a voter from the metadata quorum (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import int16, int32, message, string, uuid


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
