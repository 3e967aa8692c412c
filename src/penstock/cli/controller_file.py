"""What a controller's server.properties and meta.properties say about it as a voter (KIP-853)."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from penstock.client.admin.quorum import VoterEndpoint
from penstock.config.meta_properties import META_PROPERTIES, decode_meta_properties
from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.config.properties import PropertiesError
from penstock.world.real import RealDisk


class ControllerFileError(Exception):
    """Why a file does not describe a controller that can become a voter."""


class Controller(NamedTuple):
    id: int
    directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]


def read_controller(path: str) -> Controller:
    """Read the configuration of a controller, and the directory id that it was formatted with.
    Raises ControllerFileError."""
    disk = RealDisk()
    try:
        config = read_node_config(disk.read(path), path)
        if not config.is_controller:
            raise ControllerFileError(
                f"process.roles did not contain 'controller' in {path}. Is this a valid controller "
                "configuration file?"
            )
        meta = f"{config.metadata_log_dir}/{META_PROPERTIES}"
        if not disk.exists(meta):
            raise ControllerFileError(
                f"Unable to read meta.properties from {config.metadata_log_dir}"
            )
        properties = decode_meta_properties(disk.read(meta), meta)
    except ConfigError as error:
        raise ControllerFileError("; ".join(error.problems)) from error
    except PropertiesError as error:
        raise ControllerFileError(str(error)) from error
    except OSError as error:
        raise ControllerFileError(f"{error.filename or path}: {error.strerror or error}") from error
    if properties.node_id != config.node_id:
        raise ControllerFileError(
            f"{meta} belongs to node {properties.node_id}, not to {config.node_id}"
        )
    if properties.directory_id is None:
        raise ControllerFileError(f"No directory id found in {config.metadata_log_dir}")
    return Controller(config.node_id, properties.directory_id, _endpoints(config))


def _endpoints(config: NodeConfig) -> tuple[VoterEndpoint, ...]:
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    found = {listener.name: listener for listener in config.controller_listeners}
    return tuple(
        VoterEndpoint(name, listener.host or "localhost", listener.port)
        for name in config.controller_listener_names
        if name in found
        for listener in [advertised.get(name, found[name])]
    )
