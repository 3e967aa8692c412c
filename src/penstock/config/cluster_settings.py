"""The part of the table that makes nodes a cluster: the quorum of controllers, brokers' sessions,
replication, elections.

Settings that begin with `penstock.` are ours alone; every other one has Kafka's name, default and
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
    "How long an election may take before another one begins, at least.",
    at_least(0),
)
QUORUM_FETCH_TIMEOUT_MS = Setting(
    "controller.quorum.fetch.timeout.ms",
    INT,
    2_000,
    HIGH,
    "How long a voter may hear nothing from the quorum's leader before it stands for election, "
    "and how long a leader may hear nothing from "
    "a majority before it steps down.",
    at_least(0),
)
QUORUM_ELECTION_BACKOFF_MAX_MS = Setting(
    "controller.quorum.election.backoff.max.ms",
    INT,
    1_000,
    HIGH,
    "The longest pause before a lost election is tried again.",
    at_least(0),
)
QUORUM_APPEND_LINGER_MS = Setting(
    "controller.quorum.append.linger.ms",
    INT,
    25,
    MEDIUM,
    (
        "No effect in Penstock: decisions made while one is being synced share the next sync, "
        "without "
        "waiting."
    ),
    at_least(0),
)
QUORUM_REQUEST_TIMEOUT_MS = Setting(
    "controller.quorum.request.timeout.ms",
    INT,
    2_000,
    MEDIUM,
    "How long a request between controllers may take.",
    at_least(0),
)
QUORUM_RETRY_BACKOFF_MS = Setting(
    "controller.quorum.retry.backoff.ms",
    INT,
    20,
    LOW,
    "The pause before a failed request between controllers is tried again.",
    at_least(0),
)
QUORUM_DISCONNECT_GRACE_MS = Setting(
    "penstock.quorum.disconnect.grace.ms",
    INT,
    50,
    MEDIUM,
    "How long a voter whose connection to the quorum's leader closed waits, at least, before it "
    "stands for election. Kafka waits for "
    "controller.quorum.fetch.timeout.ms.",
    at_least(0),
)
METADATA_MAX_IDLE_INTERVAL_MS = Setting(
    "metadata.max.idle.interval.ms",
    INT,
    500,
    LOW,
    "No effect in Penstock: nothing is written while nothing happens.",
    at_least(0),
)
METADATA_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = Setting(
    "metadata.log.max.record.bytes.between.snapshots",
    LONG,
    20 * 1024 * 1024,
    HIGH,
    "A snapshot of the metadata is written after so many bytes of new records.",
    at_least(1),
)
METADATA_MAX_SNAPSHOT_INTERVAL_MS = Setting(
    "metadata.log.max.snapshot.interval.ms",
    LONG,
    3_600_000,
    HIGH,
    "A snapshot of the metadata is written after so long, if anything changed; 0 is never.",
    at_least(0),
)

# Brokers' sessions.
BROKER_HEARTBEAT_INTERVAL_MS = Setting(
    "broker.heartbeat.interval.ms",
    INT,
    2_000,
    MEDIUM,
    "How often a broker tells the controller that it lives.",
)
BROKER_SESSION_TIMEOUT_MS = Setting(
    "broker.session.timeout.ms",
    INT,
    9_000,
    MEDIUM,
    "A broker that was not heard of for so long is fenced.",
)
BROKER_DISCONNECT_GRACE_MS = Setting(
    "penstock.broker.disconnect.grace.ms",
    INT,
    50,
    MEDIUM,
    "When a broker's connection to the controller closes and no heartbeat comes within this time, "
    "the controller knocks at the broker's "
    "listener, and fences it if nobody answers there. Kafka waits for broker.session.timeout.ms; "
    "-1 does so too.",
    at_least(-1),
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = Setting(
    "initial.broker.registration.timeout.ms",
    INT,
    60_000,
    MEDIUM,
    "How long a broker tries to register before it gives up.",
)
CONTROLLED_SHUTDOWN_ENABLE = Setting(
    "controlled.shutdown.enable",
    BOOLEAN,
    True,
    MEDIUM,
    "Whether a broker that stops hands its partitions over first.",
)

# Replication.
REPLICA_LAG_TIME_MAX_MS = Setting(
    "replica.lag.time.max.ms",
    LONG,
    30_000,
    HIGH,
    "A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
)
REPLICA_FETCH_WAIT_MAX_MS = Setting(
    "replica.fetch.wait.max.ms",
    INT,
    500,
    HIGH,
    "How long a leader may hold back a follower's fetch when there is nothing new.",
)
REPLICA_FETCH_MIN_BYTES = Setting(
    "replica.fetch.min.bytes",
    INT,
    1,
    HIGH,
    "A follower's fetch is answered early once there is so much.",
)
REPLICA_FETCH_MAX_BYTES = Setting(
    "replica.fetch.max.bytes",
    INT,
    1024 * 1024,
    MEDIUM,
    "How many bytes of a partition a follower fetches at once.",
    at_least(0),
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = Setting(
    "replica.fetch.response.max.bytes",
    INT,
    10 * 1024 * 1024,
    MEDIUM,
    "How many bytes a follower fetches at once in all.",
    at_least(0),
)
REPLICA_FETCH_BACKOFF_MS = Setting(
    "replica.fetch.backoff.ms",
    INT,
    1_000,
    MEDIUM,
    "The longest pause of a follower after a failed fetch.",
    at_least(0),
)
REPLICA_SOCKET_TIMEOUT_MS = Setting(
    "replica.socket.timeout.ms",
    INT,
    30_000,
    HIGH,
    "How long a follower waits for the answer to a fetch.",
)
NUM_REPLICA_FETCHERS = Setting(
    "num.replica.fetchers",
    INT,
    1,
    HIGH,
    "No effect in Penstock: one connection to each leader fetches all its partitions.",
    at_least(1),
    Dynamic.CLUSTER_WIDE,
)
REPLICA_SELECTOR_CLASS = Setting[str | None](
    "replica.selector.class",
    STRING,
    None,
    MEDIUM,
    (
        "org.apache.kafka.common.replica.RackAwareReplicaSelector lets consumers with a rack read "
        "from the follower in it (KIP-392)."
    ),
)

# Elections.
AUTO_LEADER_REBALANCE_ENABLE = Setting(
    "auto.leader.rebalance.enable",
    BOOLEAN,
    True,
    HIGH,
    "Whether the controller gives leadership back to preferred leaders by itself.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting(
    "leader.imbalance.check.interval.seconds",
    LONG,
    300,
    HIGH,
    "How often it looks for partitions not led by their preferred leader.",
    at_least(1),
)
