"""Measures of a node's server, its event loop and its process."""

from __future__ import annotations

from penstock.metrics.measure import counter, gauge, histogram

_REQUEST = "kafka.network:type=RequestMetrics,name={},request={{api}}"
_SOCKET = "kafka.server:type=socket-server-metrics,listener={{listener}},attribute={}"

NODE_INFO = gauge(
    "node_info",
    "1, with the identity of the node.",
    "kafka.server:type=app-info,attribute=version",
    ("cluster_id", "node_id", "roles", "version"),
)
CLOCK = gauge(
    "clock_seconds",
    "The wall clock of the node when it collected this page, in seconds since 1970.",
)

# Requests.
REQUESTS = counter(
    "requests",
    "Requests that were taken, by API.",
    _REQUEST.format("RequestsPerSec"),
    ("api",),
)
REQUEST_SECONDS = histogram(
    "request_seconds",
    "Time from the arrival of a request until its response is ready to be sent, by API.",
    _REQUEST.format("TotalTimeMs"),
    ("api",),
)
REQUEST_QUEUE_SECONDS = counter(
    "request_queue_seconds",
    "Time that requests waited for their turn after they arrived, by API.",
    _REQUEST.format("RequestQueueTimeMs"),
    ("api",),
)
REQUEST_LOCAL_SECONDS = counter(
    "request_local_seconds",
    "Time of the event loop that requests took, by API.",
    _REQUEST.format("LocalTimeMs"),
    ("api",),
)
REQUEST_REMOTE_SECONDS = counter(
    "request_remote_seconds",
    "Time that requests waited for other nodes, for records or for the disk, by API.",
    _REQUEST.format("RemoteTimeMs"),
    ("api",),
)
REQUEST_ERRORS = counter(
    "request_errors",
    "Error codes in responses, by API and error.",
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={api},error={error}",
    ("api", "error"),
)
REQUESTS_WAITING = gauge(
    "requests_waiting",
    "Requests whose responses wait: for other nodes, for records, or for the disk.",
)

# Connections.
CONNECTIONS = gauge(
    "connections",
    "Open connections, by listener.",
    _SOCKET.format("connection-count"),
    ("listener",),
)
CONNECTIONS_OPENED = counter(
    "connections_opened",
    "Connections that were accepted.",
    _SOCKET.format("connection-creation-total"),
)
CONNECTIONS_REFUSED = counter(
    "connections_refused",
    "Connections that were refused because there were too many.",
)
CONNECTIONS_CLOSED = counter(
    "connections_closed",
    "Connections that the node closed: idle ones, peers that stalled, and broken requests.",
    "",
    ("reason",),
)
CONNECTION_PAUSES = counter(
    "connection_pauses",
    (
        "Times that the node stopped reading from a connection for a while: it had too many "
        "requests or large responses under way, or memory was short."
    ),
)
NETWORK_RECEIVED = counter(
    "network_received_bytes",
    "Bytes received on all listeners.",
    _SOCKET.format("incoming-byte-total"),
)
NETWORK_SENT = counter(
    "network_sent_bytes",
    "Bytes of responses on all listeners.",
    _SOCKET.format("outgoing-byte-total"),
)

# SASL.
AUTHENTICATIONS = counter(
    "authentications",
    (
        "SASL authentications by outcome: successful, failed, successful_again and failed_again, "
        "where again is a re-authentication."
    ),
    _SOCKET.format("successful-authentication-total"),
    ("outcome",),
)

# The authorizer; only nodes with authorizer.class.name have these.
AUTHORIZATIONS_DENIED = counter(
    "authorizations_denied",
    "Resources that clients asked for and may not use; `penstock.audit` has a line per request.",
    "kafka.server:type=StandardAuthorizer,attribute=authorization-denied-rate-per-minute",
)
ACLS = gauge(
    "acls",
    "Access control entries that the authorizer has loaded.",
    "kafka.server:type=StandardAuthorizer,attribute=acls-total-count",
)

# Client quotas.
THROTTLED_REQUESTS = counter(
    "throttled_requests",
    (
        "Requests beyond a quota of their client, by quota; connections that were refused for "
        "connection_creation_rate."
    ),
    "",
    ("quota",),
)
THROTTLE_SECONDS = counter(
    "throttle_seconds",
    "Sum of the times that clients were throttled for, by quota.",
    "kafka.server:type=Produce,attribute=throttle-time",
    ("quota",),
)

# Event loop and process.
LOOP_DELAY = histogram(
    "event_loop_delay_seconds",
    (
        "How late a timer of the event loop fired; all clients wait as long. Kafka's nearest "
        "metric is the idle share of its handler threads."
    ),
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
LOOP_DELAY_WORST = gauge(
    "event_loop_delay_worst_seconds", "The longest delay of the event loop since the start."
)
MEMORY = gauge(
    "memory_bytes",
    (
        "Memory by room: connections and the caches of logs are counted, the others are estimated "
        "from the number of their objects."
    ),
    "java.lang:type=Memory,attribute=HeapMemoryUsage",
    ("room",),
)
OPEN_LOG_FILES = gauge(
    "open_log_files",
    "Files of logs that are open.",
    "java.lang:type=OperatingSystem,attribute=OpenFileDescriptorCount",
)
DROPPED_NAMES = gauge(
    "metrics_dropped_names",
    "Topics and groups without series of their own on this page (penstock.metrics.max.topics).",
)
SCRAPES = counter("scrapes", "Pages of metrics that this node has served.")
SCRAPE_TURNS = gauge(
    "scrape_turns", "Turns of the event loop that the collection of this page has taken so far."
)
