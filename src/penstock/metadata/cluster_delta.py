"""Replays the records of brokers and controllers (Kafka's `ClusterDelta`). PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.errors import InvariantBroken
from penstock.metadata.image import BrokerImage, Endpoint, MetadataImage, SupportedFeature
from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

# The values of `fenced` and `in_controlled_shutdown` in a BrokerRegistrationChangeRecord. 0 means
# no change.
_CHANGES = {-1: False, 1: True}


class ClusterDelta:
    """Copies the mappings of the image on the first change, and records which brokers changed."""

    def __init__(self, image: MetadataImage) -> None:
        self.changed_brokers: set[int] = set()
        self._image = image
        self._brokers: dict[int, BrokerImage] | None = None
        self._controllers: dict[int, RegisterControllerRecord] | None = None

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        return self._image.brokers if self._brokers is None else self._brokers

    @property
    def controllers(self) -> Mapping[int, RegisterControllerRecord]:
        return self._image.controllers if self._controllers is None else self._controllers

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        broker = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in record.end_points
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=record.log_dirs,
            cordoned_directories=record.cordoned_log_dirs or (),
            features=tuple(
                SupportedFeature(
                    feature.name, feature.min_supported_version, feature.max_supported_version
                )
                for feature in record.features
            ),
        )
        self._editable_brokers(broker.id)[broker.id] = broker

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        del self._editable_brokers(broker.id)[broker.id]

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch, record)
        self._editable_brokers(broker.id)[broker.id] = replace(broker, fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch, record)
        self._editable_brokers(broker.id)[broker.id] = replace(broker, fenced=False)

    def replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        self._editable_brokers(broker.id)[broker.id] = replace(
            broker,
            fenced=_CHANGES.get(record.fenced, broker.fenced),
            in_controlled_shutdown=_CHANGES.get(
                record.in_controlled_shutdown, broker.in_controlled_shutdown
            ),
            directories=record.log_dirs or broker.directories,
            cordoned_directories=broker.cordoned_directories
            if record.cordoned_log_dirs is None
            else record.cordoned_log_dirs,
        )

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        if self._controllers is None:
            self._controllers = dict(self._image.controllers)
        self._controllers[record.controller_id] = record

    def _broker(self, broker_id: int, epoch: int, record: object) -> BrokerImage:
        """Return the registered broker, which must have this epoch: a record for an earlier
        registration is a broken invariant."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            registration = (
                "it is not registered"
                if broker is None
                else f"it is registered with epoch {broker.epoch}"
            )
            raise InvariantBroken(
                f"{type(record).__name__} for broker {broker_id} with epoch {epoch}: {registration}"
            )
        return broker

    def _editable_brokers(self, changed: int) -> dict[int, BrokerImage]:
        self.changed_brokers.add(changed)
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers
