"""Settings of a node: identity, listeners, directories, sockets, defaults of topics."""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Required, Setting, SettingType
from penstock.config.validators import ListOf, at_least, list_of, one_of

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
    "The id of this node, unique in its cluster.",
    at_least(0),
)
BROKER_ID = Setting(
    "broker.id", INT, -1, HIGH, "The former name of node.id. If both are set, they must be equal."
)
PROCESS_ROLES = Setting[Names](
    "process.roles",
    LIST,
    Required.REQUIRED,
    HIGH,
    "The roles of this process: broker, controller, or both.",
    list_of("broker", "controller", may_be_empty=False),
)
BROKER_RACK = Setting[str | None](
    "broker.rack",
    STRING,
    None,
    MEDIUM,
    "The rack of this broker. Replicas of a partition are spread over racks.",
)
CONTROLLER_LISTENER_NAMES = Setting[Names](
    "controller.listener.names",
    LIST,
    Required.REQUIRED,
    HIGH,
    (
        "The names of the listeners of controllers. A node with just the broker role connects "
        "to the first."
    ),
    list_of(may_be_empty=False),
)
CONTROLLER_QUORUM_VOTERS = Setting[Names](
    "controller.quorum.voters",
    LIST,
    (),
    HIGH,
    (
        "The voters of a static quorum as id@host:port. Without this setting the voters are in "
        "the metadata log, and `format` writes the first ones."
    ),
    ListOf(text="non-empty list"),
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = Setting[Names](
    "controller.quorum.bootstrap.servers",
    LIST,
    (),
    HIGH,
    (
        "The endpoints of controllers as host:port, from which a node discovers the quorum if "
        "controller.quorum.voters is not set."
    ),
    ListOf(text="non-empty list"),
)

# Listeners.
LISTENERS = Setting[Names](
    "listeners",
    LIST,
    ("PLAINTEXT://:9092",),
    HIGH,
    "The addresses that this node listens on, each as NAME://host:port.",
    list_of(),
    PER_BROKER,
)
ADVERTISED_LISTENERS = Setting[Names | None](
    "advertised.listeners",
    LIST,
    None,
    HIGH,
    "The addresses that clients connect to, if they differ from listeners.",
    list_of(),
)
LISTENER_SECURITY_PROTOCOL_MAP = Setting(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    LOW,
    (
        "The security protocol of each listener, as NAME:PROTOCOL pairs: PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL."
    ),
    None,
    PER_BROKER,
)
INTER_BROKER_LISTENER_NAME = Setting[str | None](
    "inter.broker.listener.name",
    STRING,
    None,
    MEDIUM,
    (
        "The listener for communication between brokers. If not set, the listener with the name "
        "of security.inter.broker.protocol is used."
    ),
)
SECURITY_INTER_BROKER_PROTOCOL = Setting(
    "security.inter.broker.protocol",
    STRING,
    "PLAINTEXT",
    MEDIUM,
    (
        "The name of the listener for communication between brokers, if "
        "inter.broker.listener.name is not set: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    ),
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)

# Directories.
LOG_DIR = Setting[Names](
    "log.dir",
    LIST,
    ("/tmp/kafka-logs",),
    HIGH,
    "The directory in which logs are stored. Used if log.dirs is not set.",
    list_of(),
)
LOG_DIRS = Setting[Names | None](
    "log.dirs",
    LIST,
    None,
    HIGH,
    "The directories in which logs are stored. If not set, log.dir is used.",
    list_of(),
)
# In cordoned.log.dirs.
ALL_LOG_DIRS = "*"
CORDONED_LOG_DIRS = Setting[Names](
    "cordoned.log.dirs",
    LIST,
    (),
    MEDIUM,
    (
        "The log directories that get no new replicas, each as in log.dirs; * stands for all. A "
        "broker with only cordoned directories gets none (KIP-1066)."
    ),
    list_of(),
    PER_BROKER,
)
METADATA_LOG_DIR = Setting[str | None](
    "metadata.log.dir",
    STRING,
    None,
    HIGH,
    "The directory of the metadata log. If not set, the first of log.dirs is used.",
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
        "The SO_SNDBUF of connections. If -1, or in Penstock not set, the default of the "
        "operating system is used."
    ),
)
SOCKET_RECEIVE_BUFFER_BYTES = Setting(
    "socket.receive.buffer.bytes",
    INT,
    102_400,
    HIGH,
    (
        "The SO_RCVBUF of connections. If -1, or in Penstock not set, the default of the "
        "operating system is used."
    ),
)
SOCKET_REQUEST_MAX_BYTES = Setting(
    "socket.request.max.bytes",
    INT,
    100 * 1024**2,
    HIGH,
    "The maximum number of bytes in a request.",
    at_least(1),
)
CONNECTIONS_MAX_IDLE_MS = Setting(
    "connections.max.idle.ms",
    LONG,
    600_000,
    MEDIUM,
    "Idle connections are closed after this time. A negative value disables this.",
)
MAX_CONNECTIONS = Setting(
    "max.connections",
    INT,
    2**31 - 1,
    MEDIUM,
    "The maximum number of open connections. It can be set for one listener as "
    "listener.name.<name>.max.connections.",
    at_least(0),
    CLUSTER,
)
MAX_CONNECTIONS_PER_IP = Setting(
    "max.connections.per.ip",
    INT,
    2**31 - 1,
    MEDIUM,
    "The maximum number of open connections from one IP address.",
    at_least(0),
    CLUSTER,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = Setting(
    "max.connections.per.ip.overrides",
    STRING,
    "",
    MEDIUM,
    "The maximum number of open connections from some IP addresses, as address:count pairs. "
    "In Penstock names of hosts are not resolved.",
    None,
    CLUSTER,
)
SOCKET_LISTEN_BACKLOG_SIZE = Setting(
    "socket.listen.backlog.size",
    INT,
    50,
    MEDIUM,
    "The maximum number of pending connections on a listening socket. In Penstock the "
    "default is 1,024.",
    at_least(1),
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = Setting(
    "socket.connection.setup.timeout.ms",
    LONG,
    10_000,
    MEDIUM,
    "The time to wait for a connection to another node to be established, at first.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = Setting(
    "socket.connection.setup.timeout.max.ms",
    LONG,
    30_000,
    MEDIUM,
    "The maximum time to wait for a connection to another node. The timeout grows with "
    "consecutive failures.",
)

# Topics.
NUM_PARTITIONS = Setting(
    "num.partitions",
    INT,
    1,
    MEDIUM,
    "The default number of partitions per topic.",
    at_least(1),
)
DEFAULT_REPLICATION_FACTOR = Setting(
    "default.replication.factor",
    INT,
    1,
    MEDIUM,
    "The default replication factor of topics.",
)
AUTO_CREATE_TOPICS_ENABLE = Setting(
    "auto.create.topics.enable",
    BOOLEAN,
    True,
    HIGH,
    "Enable automatic creation of topics that clients request.",
)
DELETE_TOPIC_ENABLE = Setting(
    "delete.topic.enable", BOOLEAN, True, HIGH, "Enable the deletion of topics."
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Setting(
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    5_000,
    HIGH,
    "The frequency with which the high watermarks are saved to disk.",
)

# Internal topics that do not exist yet. The settings are accepted, so that stock files of Kafka
# work.
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = Setting(
    "share.coordinator.state.topic.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the share group state topic.",
    at_least(1),
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = Setting(
    "share.coordinator.state.topic.min.isr",
    SHORT,
    2,
    HIGH,
    "The min.insync.replicas of the share group state topic.",
    at_least(1),
)
