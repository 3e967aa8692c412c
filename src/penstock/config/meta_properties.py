"""The format of meta.properties, which has the ids of the cluster, node and log directory (KIP-631,
KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.properties import Entry, PropertiesError, decode_properties, format_properties
from penstock.ids import RESERVED_UUIDS, DirectoryId, NodeId, parse_uuid, uuid_text

META_PROPERTIES = "meta.properties"

_VERSION = "1"
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file. Directories formatted before Kafka 3.7 have no directory id."""

    cluster_id: str
    node_id: NodeId
    directory_id: DirectoryId | None = None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    values = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_text(meta.directory_id)
    values |= {"node.id": str(meta.node_id), "version": _VERSION}
    return ("#\n" + format_properties(values)).encode("ascii")


def decode_meta_properties(data: bytes, file: str) -> MetaProperties:
    """Raises PropertiesError unless it is a valid file of version 1."""
    entries = decode_properties(data, file).entries
    version = entries["version"].value.strip() if "version" in entries else "0"
    if version != _VERSION:
        raise PropertiesError(
            f"{file}: version {version} of meta.properties is not supported. Only version 1, "
            "which Kafka writes in KRaft mode, is"
        )
    return MetaProperties(
        _cluster_id(entries, file), _node_id(entries, file), _directory_id(entries)
    )


def _required(entries: Mapping[str, Entry], key: str, file: str) -> Entry:
    entry = entries.get(key)
    if entry is None or not entry.value.strip():
        raise PropertiesError(f"{file}: {key} was not found")
    return entry


def _cluster_id(entries: Mapping[str, Entry], file: str) -> str:
    return _required(entries, "cluster.id", file).value.strip()


def _node_id(entries: Mapping[str, Entry], file: str) -> NodeId:
    entry = _required(entries, "node.id", file)
    text = entry.value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _MAX_INT):
        raise PropertiesError(f"{entry.where}: node.id {text!r} is not a valid node id")
    return NodeId(int(text))


def _directory_id(entries: Mapping[str, Entry]) -> DirectoryId | None:
    entry = entries.get("directory.id")
    if entry is None:
        return None
    try:
        directory_id = parse_uuid(entry.value.strip())
    except ValueError as error:
        raise PropertiesError(f"{entry.where}: directory.id: {error}") from error
    if directory_id.int < RESERVED_UUIDS:
        raise PropertiesError(f"{entry.where}: directory.id {uuid_text(directory_id)} is reserved")
    return directory_id
