"""The part of the table that makes a node: who it is, where it listens, where its directories are,
and what it does for topics."""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Required, Setting, SettingType
from penstock.config.validators import ListOf, at_least, list_of

BOOLEAN, INT, SHORT, LONG, STRING, LIST = (
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.SHORT,
    SettingType.LONG,
    SettingType.STRING,
    SettingType.LIST,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER, PER_BROKER = Dynamic.CLUSTER_WIDE, Dynamic.PER_BROKER

Names = tuple[str, ...]

# Identity.
NODE_ID = Setting[int](
    "node.id",
    INT,
    Required.REQUIRED,
    HIGH,
    "The number of this node, unique in its cluster.",
    at_least(0),
)
BROKER_ID = Setting(
    "broker.id", INT, -1, HIGH, "The older name of node.id. Where both are set they must agree."
)
PROCESS_ROLES = Setting[Names](
    "process.roles",
    LIST,
    Required.REQUIRED,
    HIGH,
    "What this node is: broker, controller, or both.",
    list_of("broker", "controller", may_be_empty=False),
)
BROKER_RACK = Setting[str | None](
    "broker.rack",
    STRING,
    None,
    MEDIUM,
    "Where this broker stands; the replicas of a partition are spread over racks.",
)
CONTROLLER_LISTENER_NAMES = Setting[Names](
    "controller.listener.names",
    LIST,
    Required.REQUIRED,
    HIGH,
    (
        "The names of the listeners that controllers use. A broker that is no controller connects "
        "to "
        "the first."
    ),
    list_of(may_be_empty=False),
)
CONTROLLER_QUORUM_VOTERS = Setting[Names](
    "controller.quorum.voters",
    LIST,
    (),
    HIGH,
    (
        "Every controller of the cluster as id@host:port. A controller without this is a quorum of "
        "its own."
    ),
    ListOf(text="non-empty list"),
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = Setting[Names](
    "controller.quorum.bootstrap.servers",
    LIST,
    (),
    HIGH,
    (
        "Controllers as host:port, by which a node finds the quorum when controller.quorum.voters "
        "is "
        "not set."
    ),
    ListOf(text="non-empty list"),
)

# Listeners.
LISTENERS = Setting[Names](
    "listeners",
    LIST,
    ("PLAINTEXT://:9092",),
    HIGH,
    "Where this node listens, each as NAME://host:port.",
    list_of(),
    PER_BROKER,
)
ADVERTISED_LISTENERS = Setting[Names | None](
    "advertised.listeners",
    LIST,
    None,
    HIGH,
    "Where clients are told to connect, where that differs from listeners.",
    list_of(),
)
LISTENER_SECURITY_PROTOCOL_MAP = Setting(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    LOW,
    (
        "Which security protocol each listener speaks, as NAME:PROTOCOL pairs. Penstock has "
        "PLAINTEXT "
        "so far."
    ),
    None,
    PER_BROKER,
)
INTER_BROKER_LISTENER_NAME = Setting[str | None](
    "inter.broker.listener.name",
    STRING,
    None,
    MEDIUM,
    "The listener by which brokers reach each other. Unset: PLAINTEXT.",
)

# Directories.
LOG_DIR = Setting[Names](
    "log.dir",
    LIST,
    ("/tmp/kafka-logs",),
    HIGH,
    "Where logs are kept, when log.dirs is not set.",
    list_of(),
)
LOG_DIRS = Setting[Names | None](
    "log.dirs", LIST, None, HIGH, "The directories where logs are kept. Unset: log.dir.", list_of()
)
METADATA_LOG_DIR = Setting[str | None](
    "metadata.log.dir",
    STRING,
    None,
    HIGH,
    "Where the cluster's metadata log is kept. Unset: the first of log.dirs.",
)

# Sockets and threads.
NUM_NETWORK_THREADS = Setting(
    "num.network.threads",
    INT,
    3,
    HIGH,
    "No effect in Penstock: one event loop serves all connections of a node.",
    at_least(1),
    CLUSTER,
)
NUM_IO_THREADS = Setting(
    "num.io.threads",
    INT,
    8,
    HIGH,
    "No effect in Penstock: one event loop serves all requests of a node.",
    at_least(1),
    CLUSTER,
)
SOCKET_SEND_BUFFER_BYTES = Setting(
    "socket.send.buffer.bytes",
    INT,
    102_400,
    HIGH,
    (
        "SO_SNDBUF of connections, where it is set; -1, and in Penstock unset, leaves it to the "
        "operating system."
    ),
)
SOCKET_RECEIVE_BUFFER_BYTES = Setting(
    "socket.receive.buffer.bytes",
    INT,
    102_400,
    HIGH,
    (
        "SO_RCVBUF of connections, where it is set; -1, and in Penstock unset, leaves it to the "
        "operating system."
    ),
)
SOCKET_REQUEST_MAX_BYTES = Setting(
    "socket.request.max.bytes", INT, 100 * 1024**2, HIGH, "The largest request taken.", at_least(1)
)
CONNECTIONS_MAX_IDLE_MS = Setting(
    "connections.max.idle.ms",
    LONG,
    600_000,
    MEDIUM,
    "How long a connection may be silent before it is closed; below 0, for ever.",
)
MAX_CONNECTIONS = Setting(
    "max.connections",
    INT,
    2**31 - 1,
    MEDIUM,
    "How many connections may be open at once. In Penstock a change counts from the next start on.",
    at_least(0),
    CLUSTER,
)
SOCKET_LISTEN_BACKLOG_SIZE = Setting(
    "socket.listen.backlog.size",
    INT,
    50,
    MEDIUM,
    "How many connections may wait to be accepted; in Penstock 1,024 where it is not set.",
    at_least(1),
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = Setting(
    "socket.connection.setup.timeout.ms",
    LONG,
    10_000,
    MEDIUM,
    "How long a connection to another node may take to be made, at first.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = Setting(
    "socket.connection.setup.timeout.max.ms",
    LONG,
    30_000,
    MEDIUM,
    "The same after repeated failures, between which it grows.",
)

# Topics.
NUM_PARTITIONS = Setting(
    "num.partitions",
    INT,
    1,
    MEDIUM,
    "How many partitions a topic has whose creation does not say.",
    at_least(1),
)
DEFAULT_REPLICATION_FACTOR = Setting(
    "default.replication.factor",
    INT,
    1,
    MEDIUM,
    "How many replicas a partition has whose topic's creation does not say.",
)
AUTO_CREATE_TOPICS_ENABLE = Setting(
    "auto.create.topics.enable",
    BOOLEAN,
    True,
    HIGH,
    "Whether a client that asks for a topic that is not there may have it created.",
)
DELETE_TOPIC_ENABLE = Setting(
    "delete.topic.enable", BOOLEAN, True, HIGH, "Whether topics can be deleted."
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Setting(
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    5_000,
    HIGH,
    "How often the high watermarks are written to disk.",
)

# Internal topics: read so that a stock file is taken as it is; their coordinators use them once
# they are there.
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = Setting(
    "transaction.state.log.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the topic of transaction states.",
    at_least(1),
)
TRANSACTION_STATE_LOG_MIN_ISR = Setting(
    "transaction.state.log.min.isr",
    INT,
    2,
    HIGH,
    "min.insync.replicas of the topic of transaction states.",
    at_least(1),
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = Setting(
    "share.coordinator.state.topic.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the topic of share states.",
    at_least(1),
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = Setting(
    "share.coordinator.state.topic.min.isr",
    SHORT,
    2,
    HIGH,
    "min.insync.replicas of the topic of share states.",
    at_least(1),
)
