"""The quorum-state file: a voter's epoch and vote, in Kafka's JSON format.

Version 0 is for static voters (kraft.version 0), version 1 for dynamic voters (kraft.version 1),
which are identified by directory id too.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from penstock.errors import KafkaError, ProtocolError
from penstock.ids import parse_uuid, uuid_text
from penstock.protocol.codec import encode_bytes
from penstock.protocol.layout import layout_of
from penstock.protocol.schema import array, int32, int64, message, string, struct, uuid


@message(versions="0-1", flexible="0+")
class QuorumStateData:
    @struct
    class CurrentVoter:
        voter_id: int = int32("0")

    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: UUID = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: tuple[CurrentVoter, ...] | None = array(CurrentVoter, "0", nullable="0")


DATA_VERSION = "data_version"


def encode_quorum_state(state: QuorumStateData, version: int) -> bytes:
    """Return the file's content: the fields of the version, under Kafka's names."""
    content: dict[str, object] = {}
    for field in layout_of(QuorumStateData, version).plain(QuorumStateData):
        value = getattr(state, field.name)
        content[_camel(field.name)] = _to_json(value)
    return json.dumps({**content, DATA_VERSION: version}, separators=(",", ":")).encode()


def _to_json(value: object) -> object:
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, tuple):
        return [{"voterId": voter.voter_id} for voter in value]
    return value


def decode_quorum_state(content: bytes) -> tuple[QuorumStateData, int]:
    """Return the state and its version. Raise ProtocolError if the file is damaged. As in Kafka,
    the first line counts."""
    try:
        fields = json.loads(content.partition(b"\n")[0])
        version = fields.pop(DATA_VERSION)
        carried = layout_of(QuorumStateData, version).plain(QuorumStateData)
        state = QuorumStateData(
            **{field.name: _from_json(field.kind, fields[_camel(field.name)]) for field in carried}
        )
        encode_bytes(state, version)  # checks types and ranges
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, KafkaError) as error:
        raise ProtocolError(f"the quorum-state file is damaged: {error!r}") from error
    return state, version


def _from_json(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return parse_uuid(value)
    if isinstance(value, list):
        return tuple(QuorumStateData.CurrentVoter(voter_id=voter["voterId"]) for voter in value)
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
