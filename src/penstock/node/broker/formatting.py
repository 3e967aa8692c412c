"""Formats the directories of a node, as kafka-storage.sh format does.

Each log directory and the metadata log directory gets a meta.properties with the cluster id, the
node id and a directory id. That of a controller in a dynamic quorum also gets its first voters.
With SCRAM credentials or access control entries the metadata log directory gets a
bootstrap.checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.config.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from penstock.config.node import NodeConfig
from penstock.config.properties import PropertiesError
from penstock.ids import uuid_text
from penstock.metadata.acls_delta import acl_record
from penstock.metadata.scram_delta import credential_record
from penstock.node.quorum.bootstrap_file import BOOTSTRAP_CHECKPOINT, bootstrap_content
from penstock.node.quorum.initial_voters import InitialVoters
from penstock.node.quorum.log import metadata_log_path
from penstock.protocol.internal.metadata_security import UserScramCredentialRecord
from penstock.security.acls import Acl
from penstock.world import Disk, Rng

if TYPE_CHECKING:
    from penstock.security.setup.cluster import ClusterSecrets

Say = Callable[[str], object]


class FormatError(Exception):
    """The reason why nothing, or nothing more, was formatted."""


def format_directories(
    disk: Disk,
    rng: Rng,
    node: NodeConfig,
    cluster_id: str | None,
    *,
    ignore_formatted: bool,
    say: Say,
    quorum: InitialVoters | None = None,
    credentials: Sequence[UserScramCredentialRecord] = (),
    acls: Sequence[Acl] = (),
) -> str:
    """Format the directories and return the cluster id. FormatError, before anything is written, if
    formatted directories have another cluster or node id. With `quorum` the node is a controller of
    a dynamic quorum (KIP-853). A new cluster begins with the `credentials` and `acls`."""
    formatted = _read_formatted(disk, node)
    _check_cluster_id(cluster_id)
    expected = cluster_id or next((meta.cluster_id for meta in formatted.values()), None)
    if expected is not None:
        _check_agreement(formatted, node, expected)
    if formatted and not ignore_formatted:
        first = next(iter(formatted))
        reason = (
            f"Log directory {first} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
        raise FormatError(reason)
    unformatted = [directory for directory in node.directories if directory not in formatted]
    if not unformatted:
        say("All of the log directories are already formatted.")
        return str(expected)
    if expected is None:
        expected = uuid_text(rng.uuid())
        say(f"Cluster id: {expected}")
    records = [*credentials, *(acl_record(rng.uuid(), acl) for acl in acls)]
    taken = {meta.directory_id for meta in formatted.values()}
    for directory in unformatted:
        is_metadata = directory == node.metadata_log_dir
        given = quorum.directory_id(node.node_id) if quorum and is_metadata else None
        directory_id = given or _new_directory_id(rng, taken)
        taken.add(directory_id)
        meta = MetaProperties(expected, node.node_id, directory_id)
        say(f"Formatting {_kind(node, directory, quorum)} {directory} with cluster.id {expected}.")
        files = quorum.files(node, directory_id) if quorum and is_metadata else {}
        bootstrap = bootstrap_content(records) if records and is_metadata else None
        _write(disk, directory, meta, files, bootstrap)
    return expected


def scram_credentials(arguments: Sequence[str], rng: Rng) -> list[UserScramCredentialRecord]:
    """Return the credentials of --add-scram arguments. Raises FormatError, without secrets."""
    # Imported on first use, so that a node starts quickly.
    from penstock.security.sasl.scram_argument import ScramArgumentError, parse_add_scram

    records: dict[tuple[int, str], UserScramCredentialRecord] = {}
    for argument in arguments:
        try:
            mechanism, name, credential = parse_add_scram(argument, lambda: rng.uuid().bytes)
        except ScramArgumentError as error:
            raise FormatError(str(error)) from None
        records[mechanism, name] = credential_record((mechanism, name), credential)
    return list(records.values())


def first_records(secrets: ClusterSecrets | None, rng: Rng) -> dict[str, Any]:
    """Return the arguments with which `format_directories` creates the first users and access
    control entries of a secure cluster; none without secrets."""
    if secrets is None:
        return {}
    from penstock.security.setup.cluster import first_acls

    credentials = scram_credentials(secrets.scram_arguments, rng)
    return {"credentials": credentials, "acls": first_acls()}


def _read_formatted(disk: Disk, node: NodeConfig) -> dict[str, MetaProperties]:
    formatted = {}
    for directory in node.directories:
        path = f"{directory}/{META_PROPERTIES}"
        try:
            if disk.exists(path):
                formatted[directory] = decode_meta_properties(disk.read(path), path)
        except PropertiesError as error:
            raise FormatError(
                f"{error}. If the directory has no data to keep, empty it and format again."
            ) from error
        except OSError as error:
            raise FormatError(f"Error reading {path}: {error.strerror or error}") from error
    return formatted


def _check_cluster_id(cluster_id: str | None) -> None:
    if cluster_id is not None and (
        not cluster_id or not cluster_id.isprintable() or " " in cluster_id
    ):
        raise FormatError(
            f"Invalid cluster id {cluster_id!r}: it must have at least one character and no blanks."
        )


def _check_agreement(
    formatted: Mapping[str, MetaProperties], node: NodeConfig, cluster_id: str
) -> None:
    seen: dict[UUID, str] = {}
    for directory, meta in formatted.items():
        path = f"{directory}/{META_PROPERTIES}"
        if meta.cluster_id != cluster_id:
            raise FormatError(
                f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {meta.cluster_id}"
            )
        if meta.node_id != node.node_id:
            raise FormatError(
                f"Stored node id {meta.node_id} doesn't match previous node id {node.node_id} in "
                f"{path}. If you moved your data, make sure your configured node id matches. If "
                "you intend to create a new node, you should remove all data in your data "
                "directories."
            )
        if (
            meta.directory_id is not None
            and (other := seen.setdefault(meta.directory_id, directory)) != directory
        ):
            raise FormatError(
                f"Duplicate directory ID {uuid_text(meta.directory_id)} found. It was the ID of "
                f"{other}, but also of {directory}"
            )


def _new_directory_id(rng: Rng, taken: set[UUID | None]) -> UUID:
    while (candidate := rng.uuid()) in taken:
        continue
    return candidate


def _kind(node: NodeConfig, directory: str, quorum: InitialVoters | None) -> str:
    """Return what Kafka calls the directory."""
    if directory != node.metadata_log_dir:
        return "data directory"
    if quorum is None:
        return "metadata directory"
    return f"dynamic metadata{' voter' if quorum.are_given else ''} directory"


def _write(
    disk: Disk,
    directory: str,
    meta: MetaProperties,
    metadata_log: Mapping[str, bytes],
    bootstrap: bytes | None,
) -> None:
    """Write meta.properties last: until then the directory is not formatted."""
    try:
        disk.make_dirs(directory)
        if metadata_log:
            path = metadata_log_path(directory)
            disk.make_dirs(path)
            for name, content in metadata_log.items():
                disk.replace(f"{path}/{name}", content)
            disk.sync_dir(directory)
        if bootstrap is not None:
            disk.replace(f"{directory}/{BOOTSTRAP_CHECKPOINT}", bootstrap)
        disk.replace(f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))
    except OSError as error:
        raise FormatError(
            f"Error while writing meta.properties file {directory}: {error.strerror or error}"
        ) from error
