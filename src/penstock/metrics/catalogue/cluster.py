"""Measures of the controller and of the metadata quorum."""

from __future__ import annotations

from penstock.metrics.measure import counter, gauge

_CONTROLLER = "kafka.controller:type=KafkaController,name={}"
_RAFT = "kafka.server:type=raft-metrics,attribute={}"

ACTIVE_CONTROLLER = gauge(
    "active_controller",
    "1 if this node is the active controller, else 0. The sum over the cluster must be 1.",
    _CONTROLLER.format("ActiveControllerCount"),
)
OFFLINE_PARTITIONS = gauge(
    "offline_partitions",
    "Partitions of the cluster without a leader; only the active controller has this measure.",
    _CONTROLLER.format("OfflinePartitionsCount"),
)
PREFERRED_IMBALANCE = gauge(
    "preferred_replica_imbalance",
    "Partitions of the cluster that their preferred replica does not lead; active controller only.",
    _CONTROLLER.format("PreferredReplicaImbalanceCount"),
)
TOPICS = gauge(
    "cluster_topics",
    "Topics of the cluster; active controller only.",
    _CONTROLLER.format("GlobalTopicCount"),
)
CLUSTER_PARTITIONS = gauge(
    "cluster_partitions",
    "Partitions of the cluster; active controller only.",
    _CONTROLLER.format("GlobalPartitionCount"),
)
BROKERS = gauge(
    "cluster_brokers",
    "Registered brokers by state (active, fenced); active controller only.",
    _CONTROLLER.format("ActiveBrokerCount"),
    ("state",),
)
ELECTIONS = counter(
    "leader_elections",
    (
        "Leaders that this node elected for partitions while it was the active controller; before "
        "KRaft, LeaderElectionRateAndTimeMs."
    ),
)
UNCLEAN_ELECTIONS = counter(
    "unclean_leader_elections",
    "Elections of a replica that was not in sync: records may be lost.",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)

QUORUM_LEADER = gauge(
    "quorum_leader",
    "The id of the quorum's leader as this node knows it; -1 if it knows none.",
    _RAFT.format("current-leader"),
)
QUORUM_EPOCH = gauge(
    "quorum_epoch", "The epoch of the quorum as this node knows it.", _RAFT.format("current-epoch")
)
QUORUM_HIGH_WATERMARK = gauge(
    "quorum_high_watermark",
    "The high watermark of the metadata log.",
    _RAFT.format("high-watermark"),
)
QUORUM_END = gauge(
    "quorum_log_end_offset", "The end of this node's metadata log.", _RAFT.format("log-end-offset")
)
QUORUM_VOTERS = gauge("quorum_voters", "Voters of the quorum.", _RAFT.format("number-of-voters"))
QUORUM_LAG = gauge(
    "quorum_voter_lag",
    "Records of the metadata log that a voter does not have; only the leader has this measure.",
    "",
    ("voter",),
)
QUORUM_VOTER_SILENCE = gauge(
    "quorum_voter_silence_seconds",
    "Time since the last fetch of a voter; only the leader has this measure.",
    "",
    ("voter",),
)
METADATA_APPLIED = gauge(
    "metadata_applied_offset",
    "The offset of the metadata log up to which this node has applied it.",
    "kafka.server:type=broker-metadata-metrics,attribute=last-applied-record-offset",
)
METADATA_LAG = gauge(
    "metadata_apply_lag",
    "Committed records of the metadata log that this node has not applied.",
)
