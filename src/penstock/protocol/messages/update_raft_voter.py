"""UpdateRaftVoter: a voter of the metadata quorum updates its endpoints and supported versions
(KIP-853)."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    @struct
    class Listener:
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    @struct
    class KRaftVersionFeature:
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature, "0+")


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    @struct
    class CurrentLeader:
        leader_id: int = int32("0+", default=-1)
        leader_epoch: int = int32("0+", default=-1)
        host: str = string("0+")
        port: int = int32("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = nested(CurrentLeader, "0+", tag=0)
