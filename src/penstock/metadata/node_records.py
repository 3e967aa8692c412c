"""What the records about brokers, controllers and producer ids do to an image. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import InvariantBroken, invariant
from penstock.metadata.draft import Draft
from penstock.metadata.image import BrokerImage, Endpoint, SupportedFeature
from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

# How a BrokerRegistrationChangeRecord says yes, no, and nothing.
_MEANING = {-1: False, 1: True}


def _register(draft: Draft, record: RegisterBrokerRecord) -> None:
    broker = BrokerImage(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(
            Endpoint(one.name, one.host, one.port, one.security_protocol)
            for one in record.end_points
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=record.log_dirs,
        cordoned_directories=record.cordoned_log_dirs or (),
        features=tuple(
            SupportedFeature(one.name, one.min_supported_version, one.max_supported_version)
            for one in record.features
        ),
    )
    draft.set_broker(broker.id, broker)


def _registered(draft: Draft, broker_id: int, epoch: int, record: object) -> BrokerImage:
    """The broker that a record is about. One of another epoch has been replaced since, so the
    record cannot be right."""
    name = type(record).__name__
    broker = draft.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        known = (
            "it is not registered"
            if broker is None
            else f"it is registered with epoch {broker.epoch}"
        )
        raise InvariantBroken(f"{name} for broker {broker_id} with epoch {epoch}: {known}")
    return broker


def _unregister(draft: Draft, record: UnregisterBrokerRecord) -> None:
    _registered(draft, record.broker_id, record.broker_epoch, record)
    draft.set_broker(record.broker_id, None)


def _fence(draft: Draft, record: FenceBrokerRecord) -> None:
    draft.set_broker(
        record.id, replace(_registered(draft, record.id, record.epoch, record), fenced=True)
    )


def _unfence(draft: Draft, record: UnfenceBrokerRecord) -> None:
    draft.set_broker(
        record.id, replace(_registered(draft, record.id, record.epoch, record), fenced=False)
    )


def _change(draft: Draft, record: BrokerRegistrationChangeRecord) -> None:
    broker = _registered(draft, record.broker_id, record.broker_epoch, record)
    changed = replace(
        broker,
        fenced=_MEANING.get(record.fenced, broker.fenced),
        in_controlled_shutdown=_MEANING.get(
            record.in_controlled_shutdown, broker.in_controlled_shutdown
        ),
        directories=record.log_dirs or broker.directories,
        cordoned_directories=broker.cordoned_directories
        if record.cordoned_log_dirs is None
        else record.cordoned_log_dirs,
    )
    draft.set_broker(broker.id, changed)


def _register_controller(draft: Draft, record: RegisterControllerRecord) -> None:
    draft.edit_controllers()[record.controller_id] = record


def _producer_ids(draft: Draft, record: ProducerIdsRecord) -> None:
    before, after = draft.next_producer_id, record.next_producer_id
    invariant(
        after > before or before == after == 0,
        f"producer ids below {before} were given away, and now only those below {after}",
    )
    draft.next_producer_id = after


APPLY: Mapping[type, Callable[[Draft, Any], None]] = {
    RegisterBrokerRecord: _register,
    UnregisterBrokerRecord: _unregister,
    FenceBrokerRecord: _fence,
    UnfenceBrokerRecord: _unfence,
    BrokerRegistrationChangeRecord: _change,
    RegisterControllerRecord: _register_controller,
    ProducerIdsRecord: _producer_ids,
}
