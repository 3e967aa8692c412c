"""AddRaftVoter: adds a voter to the metadata quorum (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    @struct
    class Listener:
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    ack_when_committed: bool = boolean("1+", default=True)


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
