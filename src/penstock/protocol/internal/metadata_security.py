"""Records of the cluster metadata log about access control, delegation tokens and SCRAM
credentials. `metadata_records` frames them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, blob, int8, int32, int64, message, string, uuid


@message(api_key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: UUID = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message(api_key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: UUID = uuid("0+")


@message(api_key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: tuple[str, ...] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


@message(api_key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str = string("0+")


@message(api_key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = blob("0+")
    stored_key: bytes = blob("0+")
    server_key: bytes = blob("0+")
    iterations: int = int32("0+")


@message(api_key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str = string("0+")
    mechanism: int = int8("0+")
