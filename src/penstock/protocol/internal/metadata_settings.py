"""Records of the cluster metadata log about settings, quotas, features, and its own transactions.
`metadata_records` frames them."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, float64, int8, int16, message, string, struct


@message(api_key=4, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message(api_key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    @struct
    class Entity:
        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    entity: tuple[Entity, ...] = array(Entity, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


@message(api_key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str = string("0+")
    feature_level: int = int16("0+")


@message(api_key=20, versions="0", flexible="0+")
class NoOpRecord:
    """An idle controller writes it to advance the high watermark."""


@message(api_key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """State of a migration from ZooKeeper; 0 in clusters that never had it."""

    zk_migration_state: int = int8("0+")


@message(api_key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """The records that follow take effect with the EndTransactionRecord (KIP-868)."""

    name: str | None = string("0+", nullable="0+", tag=0, default=None)


@message(api_key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(api_key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = string("0+", nullable="0+", tag=0, default=None)
