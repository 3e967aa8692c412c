"""Measures of the group coordinator, the lag of groups, and the transaction coordinator."""

from __future__ import annotations

from penstock.metrics.measure import counter, gauge

_GROUP = ("group",)
_GROUP_TOPIC = ("group", "topic")
_GROUP_PARTITION = ("group", "topic", "partition")

GROUPS = gauge(
    "groups",
    "Groups that this broker coordinates, by protocol and state.",
    "kafka.server:type=group-coordinator-metrics,protocol={protocol},state={state},attribute=group-count",
    ("protocol", "state"),
)
GROUP_MEMBERS = gauge(
    "group_members",
    "Members of a group.",
    "",
    _GROUP,
)
REBALANCES = counter(
    "group_rebalances",
    (
        "Rebalances that groups of this broker have begun, by protocol. Those of classic groups "
        "Kafka counts when they are completed (group-completed-rebalance-count)."
    ),
    "kafka.server:type=group-coordinator-metrics,attribute=consumer-group-rebalance-count",
    ("protocol",),
)
COMMITTED_OFFSETS = gauge(
    "committed_offsets",
    "Offsets of groups that this broker stores.",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
)
GROUP_LAG = gauge(
    "group_lag",
    "Offsets between the committed offset of a group and the high watermark, summed by topic.",
    "kafka.consumer:type=consumer-fetch-manager-metrics,client-id={id},attribute=records-lag",
    _GROUP_TOPIC,
)
GROUP_LAG_MAX = gauge(
    "group_lag_max",
    "The largest lag of a group in one partition, in offsets.",
    "kafka.consumer:type=consumer-fetch-manager-metrics,client-id={id},attribute=records-lag-max",
    _GROUP,
)
GROUP_LAG_SECONDS = gauge(
    "group_lag_seconds",
    (
        "Age of the first record that a group has not committed, by its timestamp, of the "
        "partition where it is oldest; 0 if there is none."
    ),
    "",
    _GROUP_TOPIC,
)
GROUP_LAG_UNKNOWN = gauge(
    "group_lag_unknown_partitions",
    "Partitions whose lag is not on this page: their leader did not answer in time.",
    "",
    _GROUP,
)
PARTITION_LAG = gauge(
    "group_partition_lag",
    "Offsets between the committed offset of a group and the high watermark of a partition.",
    "kafka.consumer:type=consumer-fetch-manager-metrics,client-id={id},topic={topic},"
    "partition={partition},attribute=records-lag",
    _GROUP_PARTITION,
)
PARTITION_LAG_SECONDS = gauge(
    "group_partition_lag_seconds",
    "Age of the first record of a partition that a group has not committed.",
    "",
    _GROUP_PARTITION,
)

TRANSACTIONS = gauge(
    "transactions",
    "Transactional ids that this broker coordinates, by state.",
    "",
    ("state",),
)
TRANSACTION_AGE = gauge(
    "transaction_oldest_seconds",
    "Age of the oldest transaction that is open or whose markers are being written; 0 if none is.",
)
LATE_TRANSACTION_PARTITIONS = gauge(
    "partitions_with_late_transactions",
    (
        "Partitions that this broker leads with a transaction that is open although its last "
        "record is older than transaction.max.timeout.ms and 5 minutes: no coordinator ends it."
    ),
    "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
)
OPEN_TRANSACTION_PARTITIONS = gauge(
    "partitions_with_open_transactions",
    "Partitions that this broker leads whose last stable offset is below the high watermark.",
)
