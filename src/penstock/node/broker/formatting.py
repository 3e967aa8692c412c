"""Formats the directories of a node, as kafka-storage.sh format does.

Each log directory and the metadata log directory gets a meta.properties with the cluster id, the
node id and a directory id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from penstock.world import Disk, Rng

Say = Callable[[str], object]


class FormatError(Exception):
    """The reason why nothing, or nothing more, was formatted."""


def check_standalone(node: NodeConfig, standalone: bool) -> None:
    """Check that a controller has either --standalone or controller.quorum.voters: without either,
    two controllers could start two clusters."""
    if standalone and not node.is_controller:
        raise FormatError("You cannot use --standalone on a broker node.")
    if standalone and node.voters:
        raise FormatError(
            "You cannot use --standalone if controller.quorum.voters is set: those voters are the "
            "quorum."
        )
    if not standalone and node.is_own_quorum:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify "
            "--standalone, which makes it a quorum of one, or set controller.quorum.voters."
        )


def format_directories(
    disk: Disk,
    rng: Rng,
    node: NodeConfig,
    cluster_id: str | None,
    *,
    ignore_formatted: bool,
    say: Say,
) -> str:
    """Format the directories and return the cluster id. FormatError, before anything is written, if
    formatted directories have another cluster or node id."""
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
    taken = {meta.directory_id for meta in formatted.values()}
    for directory in unformatted:
        meta = MetaProperties(expected, node.node_id, _new_directory_id(rng, taken))
        taken.add(meta.directory_id)
        _write(disk, node, directory, meta, say)
    return expected


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


def _write(disk: Disk, node: NodeConfig, directory: str, meta: MetaProperties, say: Say) -> None:
    kind = "metadata directory" if directory == node.metadata_log_dir else "data directory"
    say(f"Formatting {kind} {directory} with cluster.id {meta.cluster_id}.")
    try:
        disk.make_dirs(directory)
        disk.replace(f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))
    except OSError as error:
        raise FormatError(
            f"Error while writing meta.properties file {directory}: {error.strerror or error}"
        ) from error
