"""Records of the cluster metadata log about brokers and controllers. `metadata_records` frames
them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    @struct
    class EndPoint:
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @struct
    class Feature:
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: UUID = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: tuple[EndPoint, ...] = array(EndPoint, "0+")
    features: tuple[Feature, ...] = array(Feature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[UUID, ...] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(
        uuid, "4+", nullable="4+", tag=1, default=None
    )


@message(api_key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


@message(api_key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    id: int = int32("0+")
    epoch: int = int64("0+")


@message(api_key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: int = int32("0+")
    epoch: int = int64("0+")


@message(api_key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """Changes part of a registration. In `fenced` and `in_controlled_shutdown`, -1 clears, 0 keeps
    and 1 sets the flag."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[UUID, ...] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(
        uuid, "3+", nullable="3+", tag=3, default=None
    )


@message(api_key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    @struct
    class EndPoint:
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    @struct
    class Feature:
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    controller_id: int = int32("0+")
    incarnation_id: UUID = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: tuple[EndPoint, ...] = array(EndPoint, "0+")
    features: tuple[Feature, ...] = array(Feature, "0+")


@message(api_key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` are allocated to brokers."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")
