"""Settings of the cluster: quorum, broker sessions, replication, elections.

Names that start with `penstock.` do not exist in Kafka. All others have Kafka's name, default and
meaning.
"""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import at_least

BOOLEAN, INT, LONG, STRING = (
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.LONG,
    SettingType.STRING,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

# The quorum.
QUORUM_ELECTION_TIMEOUT_MS = Setting(
    "controller.quorum.election.timeout.ms",
    INT,
    1_000,
    HIGH,
    "The minimum time without a leader before a voter starts a new election.",
    at_least(0),
)
QUORUM_FETCH_TIMEOUT_MS = Setting(
    "controller.quorum.fetch.timeout.ms",
    INT,
    2_000,
    HIGH,
    "The maximum time without a successful fetch from the leader before a voter starts an "
    "election, and without fetches from a majority before the leader resigns.",
    at_least(0),
)
QUORUM_ELECTION_BACKOFF_MAX_MS = Setting(
    "controller.quorum.election.backoff.max.ms",
    INT,
    1_000,
    HIGH,
    "The maximum time before a voter starts another election after a lost one.",
    at_least(0),
)
QUORUM_APPEND_LINGER_MS = Setting(
    "controller.quorum.append.linger.ms",
    INT,
    25,
    MEDIUM,
    (
        "No effect in Penstock: records that are appended during a sync share the next one, "
        "without waiting."
    ),
    at_least(0),
)
QUORUM_REQUEST_TIMEOUT_MS = Setting(
    "controller.quorum.request.timeout.ms",
    INT,
    2_000,
    MEDIUM,
    "The maximum time to wait for the response to a request between controllers.",
    at_least(0),
)
QUORUM_RETRY_BACKOFF_MS = Setting(
    "controller.quorum.retry.backoff.ms",
    INT,
    20,
    LOW,
    "The time to wait before retrying a failed request between controllers.",
    at_least(0),
)
QUORUM_DISCONNECT_GRACE_MS = Setting(
    "penstock.quorum.disconnect.grace.ms",
    INT,
    50,
    MEDIUM,
    "The minimum time that a voter waits before it starts an election after its connection "
    "to the leader closed. Kafka waits for controller.quorum.fetch.timeout.ms.",
    at_least(0),
)
QUORUM_AUTO_JOIN_ENABLE = Setting(
    "controller.quorum.auto.join.enable",
    BOOLEAN,
    False,
    LOW,
    "Whether a controller that is no voter asks the leader to make it one (KIP-853).",
)
METADATA_MAX_IDLE_INTERVAL_MS = Setting(
    "metadata.max.idle.interval.ms",
    INT,
    500,
    LOW,
    "No effect in Penstock: the active controller writes no no-op records while it is idle.",
    at_least(0),
)
METADATA_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = Setting(
    "metadata.log.max.record.bytes.between.snapshots",
    LONG,
    20 * 1024 * 1024,
    HIGH,
    "The maximum number of bytes in the metadata log between the latest snapshot and the "
    "high watermark before a new snapshot is generated.",
    at_least(1),
)
METADATA_MAX_SNAPSHOT_INTERVAL_MS = Setting(
    "metadata.log.max.snapshot.interval.ms",
    LONG,
    3_600_000,
    HIGH,
    "The maximum time before a new snapshot is generated, if there are committed records "
    "that the latest one does not include. 0 disables this.",
    at_least(0),
)
METADATA_LOG_SEGMENT_BYTES = Setting(
    "metadata.log.segment.bytes",
    INT,
    1024**3,
    HIGH,
    "The maximum size of a segment file of the metadata log.",
    at_least(8 * 1024 * 1024),
)
METADATA_LOG_SEGMENT_MS = Setting(
    "metadata.log.segment.ms",
    LONG,
    604_800_000,
    HIGH,
    "The maximum time before a new segment file of the metadata log is rolled.",
)
METADATA_MAX_RETENTION_BYTES = Setting(
    "metadata.max.retention.bytes",
    LONG,
    100 * 1024 * 1024,
    HIGH,
    "The maximum combined size of the metadata log and its snapshots before old snapshots, and the "
    "records that they include, are deleted. The two latest snapshots are never deleted. A "
    "negative value sets no limit.",
)
METADATA_MAX_RETENTION_MS = Setting(
    "metadata.max.retention.ms",
    LONG,
    604_800_000,
    HIGH,
    "The time after which a snapshot of the metadata, and the records that it includes, are "
    "deleted. The two latest snapshots are never deleted. A negative value sets no limit.",
)

# Broker sessions.
BROKER_HEARTBEAT_INTERVAL_MS = Setting(
    "broker.heartbeat.interval.ms",
    INT,
    2_000,
    MEDIUM,
    "The time between the heartbeats of a broker.",
)
BROKER_SESSION_TIMEOUT_MS = Setting(
    "broker.session.timeout.ms",
    INT,
    9_000,
    MEDIUM,
    "The time without heartbeats after which a broker is fenced.",
)
BROKER_DISCONNECT_GRACE_MS = Setting(
    "penstock.broker.disconnect.grace.ms",
    INT,
    50,
    MEDIUM,
    "If a broker's connection to the controller closes and no heartbeat arrives within this"
    " time, the controller connects to the broker's listener, and fences the broker if the "
    "connection is refused. Kafka waits for broker.session.timeout.ms, as -1 does.",
    at_least(-1),
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = Setting(
    "initial.broker.registration.timeout.ms",
    INT,
    60_000,
    MEDIUM,
    "The time that a broker tries to register before it shuts down.",
)
CONTROLLED_SHUTDOWN_ENABLE = Setting(
    "controlled.shutdown.enable",
    BOOLEAN,
    True,
    MEDIUM,
    "Enable controlled shutdown: a broker moves its leaderships to other brokers before it stops.",
)

# Requests between brokers.
REQUEST_TIMEOUT_MS = Setting(
    "request.timeout.ms",
    INT,
    30_000,
    HIGH,
    "The maximum time that a transaction coordinator waits for the response to WriteTxnMarkers "
    "and for the commit of its records, and that a broker waits for the commit of markers.",
)

# Replication.
REPLICA_LAG_TIME_MAX_MS = Setting(
    "replica.lag.time.max.ms",
    LONG,
    30_000,
    HIGH,
    "A follower that has not caught up with the leader's log end offset for this time is "
    "removed from the ISR.",
)
REPLICA_FETCH_WAIT_MAX_MS = Setting(
    "replica.fetch.wait.max.ms",
    INT,
    500,
    HIGH,
    "The maximum time that a leader delays the response to a follower's fetch.",
)
REPLICA_FETCH_MIN_BYTES = Setting(
    "replica.fetch.min.bytes",
    INT,
    1,
    HIGH,
    "The minimum number of bytes for the response to a follower's fetch. If fewer are "
    "available, the leader waits up to replica.fetch.wait.max.ms.",
)
REPLICA_FETCH_MAX_BYTES = Setting(
    "replica.fetch.max.bytes",
    INT,
    1024 * 1024,
    MEDIUM,
    "The number of bytes that a follower fetches per partition.",
    at_least(0),
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = Setting(
    "replica.fetch.response.max.bytes",
    INT,
    10 * 1024 * 1024,
    MEDIUM,
    "The maximum number of bytes in the response to a follower's fetch.",
    at_least(0),
)
REPLICA_FETCH_BACKOFF_MS = Setting(
    "replica.fetch.backoff.ms",
    INT,
    1_000,
    MEDIUM,
    "The maximum time that a follower waits after a failed fetch.",
    at_least(0),
)
REPLICA_SOCKET_TIMEOUT_MS = Setting(
    "replica.socket.timeout.ms",
    INT,
    30_000,
    HIGH,
    "The maximum time that a follower waits for the response to a fetch.",
)
NUM_REPLICA_FETCHERS = Setting(
    "num.replica.fetchers",
    INT,
    1,
    HIGH,
    "No effect in Penstock: one connection per leader fetches all its partitions.",
    at_least(1),
    Dynamic.CLUSTER_WIDE,
)
LEADER_REPLICATION_THROTTLED_RATE = Setting(
    "leader.replication.throttled.rate",
    LONG,
    2**63 - 1,
    MEDIUM,
    "The bytes per second that this broker sends to followers of the partitions in "
    "leader.replication.throttled.replicas, unless they are in sync.",
    at_least(0),
    Dynamic.CLUSTER_WIDE,
)
FOLLOWER_REPLICATION_THROTTLED_RATE = Setting(
    "follower.replication.throttled.rate",
    LONG,
    2**63 - 1,
    MEDIUM,
    "The bytes per second that this broker fetches for its replicas in "
    "follower.replication.throttled.replicas, unless they are in sync.",
    at_least(0),
    Dynamic.CLUSTER_WIDE,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = Setting(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    LONG,
    2**63 - 1,
    MEDIUM,
    "The bytes per second that this broker copies for moves between its log directories.",
    at_least(0),
    Dynamic.CLUSTER_WIDE,
)
REPLICA_SELECTOR_CLASS = Setting[str | None](
    "replica.selector.class",
    STRING,
    None,
    MEDIUM,
    (
        "org.apache.kafka.common.replica.RackAwareReplicaSelector lets consumers fetch from the"
        " replica in their rack (KIP-392)."
    ),
)

# Elections.
AUTO_LEADER_REBALANCE_ENABLE = Setting(
    "auto.leader.rebalance.enable",
    BOOLEAN,
    True,
    HIGH,
    "Enable automatic elections of preferred leaders.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting(
    "leader.imbalance.check.interval.seconds",
    LONG,
    300,
    HIGH,
    "The frequency with which the controller checks for partitions that their preferred "
    "leader does not lead.",
    at_least(1),
)
