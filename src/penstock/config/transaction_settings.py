"""Settings of brokers for transactions and the transaction topic."""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import at_least

BOOLEAN, INT, SHORT = SettingType.BOOLEAN, SettingType.INT, SettingType.SHORT
HIGH, LOW = Importance.HIGH, Importance.LOW

# The coordinator.
TRANSACTION_MAX_TIMEOUT_MS = Setting(
    "transaction.max.timeout.ms",
    INT,
    900_000,
    HIGH,
    "The maximum timeout of transactions. A producer that asks for more gets an error.",
    at_least(1),
)
TRANSACTIONAL_ID_EXPIRATION_MS = Setting(
    "transactional.id.expiration.ms",
    INT,
    604_800_000,
    HIGH,
    "The time after which a transactional id without an open transaction expires.",
    at_least(1),
)
ABORT_TIMED_OUT_INTERVAL_MS = Setting(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    INT,
    10_000,
    LOW,
    "No effect in Penstock: coordinators abort a transaction as soon as it has timed out.",
    at_least(1),
)
REMOVE_EXPIRED_INTERVAL_MS = Setting(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    3_600_000,
    LOW,
    "The frequency with which coordinators remove transactional ids that have expired.",
    at_least(1),
)
TWO_PHASE_COMMIT_ENABLE = Setting(
    "transaction.two.phase.commit.enable",
    BOOLEAN,
    False,
    LOW,
    (
        "Enable transactions that an external coordinator prepares and commits (KIP-939). They "
        "have no timeout."
    ),
)

# Brokers that take part in a transaction.
TRANSACTION_PARTITION_VERIFICATION_ENABLE = Setting(
    "transaction.partition.verification.enable",
    BOOLEAN,
    True,
    LOW,
    (
        "Verify with the coordinator that a partition is part of the transaction before "
        "transactional records are written to it."
    ),
    None,
    Dynamic.CLUSTER_WIDE,
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = Setting(
    "add.partitions.to.txn.retry.backoff.max.ms",
    INT,
    100,
    HIGH,
    (
        "The maximum time that a coordinator delays a request while the previous transaction of "
        "its producer is being completed."
    ),
    at_least(0),
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = Setting(
    "add.partitions.to.txn.retry.backoff.ms",
    INT,
    20,
    HIGH,
    "No effect in Penstock: a delayed request continues when the previous transaction ends.",
    at_least(1),
)

# The transaction topic.
STATE_LOG_REPLICATION_FACTOR = Setting(
    "transaction.state.log.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the transaction topic.",
    at_least(1),
)
STATE_LOG_MIN_ISR = Setting(
    "transaction.state.log.min.isr",
    INT,
    2,
    HIGH,
    "The min.insync.replicas of the transaction topic.",
    at_least(1),
)
STATE_LOG_NUM_PARTITIONS = Setting(
    "transaction.state.log.num.partitions",
    INT,
    50,
    HIGH,
    "The number of partitions of the transaction topic. It must not change after deployment.",
    at_least(1),
)
STATE_LOG_SEGMENT_BYTES = Setting(
    "transaction.state.log.segment.bytes",
    INT,
    100 * 1024 * 1024,
    HIGH,
    (
        "The segment.bytes of the transaction topic. Small segments are compacted sooner, and so "
        "load faster."
    ),
    at_least(1),
)
STATE_LOG_LOAD_BUFFER_SIZE = Setting(
    "transaction.state.log.load.buffer.size",
    INT,
    5 * 1024 * 1024,
    HIGH,
    "No effect in Penstock: a coordinator loads its partitions in small batches.",
    at_least(1),
)
