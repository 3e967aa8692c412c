"""What a broker says of itself when it comes to the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.config import node_settings
from penstock.config.listeners import Listener
from penstock.config.node import NodeConfig
from penstock.controller.features.features import SUPPORTED_FEATURES
from penstock.log.store import LogStore
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest


def broker_registration(
    config: NodeConfig,
    cluster_id: str,
    ports: Mapping[str, int],
    store: LogStore,
    incarnation_id: UUID,
    host_name: str,
) -> BrokerRegistrationRequest:
    """`host_name` stands for every listener that has no host of its own. The epoch of the last
    clean shutdown is what lets the broker stay eligible to lead (KIP-966): without it, its logs may
    have lost what it had."""
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=tuple(
            _listener(listener, ports, host_name) for listener in config.advertised_broker_listeners
        ),
        features=tuple(
            BrokerRegistrationRequest.Feature(
                name=one.name, min_supported_version=one.first, max_supported_version=one.last
            )
            for one in SUPPORTED_FEATURES
        ),
        rack=config[node_settings.BROKER_RACK],
        log_dirs=tuple(directory.id for directory in store.directories),
        previous_broker_epoch=_last_clean_epoch(store),
    )


def _listener(
    listener: Listener, ports: Mapping[str, int], host_name: str
) -> BrokerRegistrationRequest.Listener:
    host = host_name if listener.host in (None, "0.0.0.0", "::") else listener.host
    return BrokerRegistrationRequest.Listener(
        name=listener.name,
        host=host or host_name,
        port=listener.port or ports.get(listener.name, 0),
    )


def _last_clean_epoch(store: LogStore) -> int:
    """-1 unless every directory was closed cleanly by the same life of the broker."""
    epochs = set(store.clean_epochs.values())
    epoch = epochs.pop() if len(epochs) == 1 else None
    return -1 if epoch is None else epoch
