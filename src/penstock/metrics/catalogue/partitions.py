"""Measures of a broker's partitions, topics and logs."""

from __future__ import annotations

from penstock.metrics.measure import counter, gauge, histogram

_REPLICAS = "kafka.server:type=ReplicaManager,name={}"
_TOPIC = "kafka.server:type=BrokerTopicMetrics,name={},topic={{topic}}"
_LOG = "kafka.log:type=Log,name={},topic={{topic}},partition={{partition}}"
_PER_TOPIC = ("topic",)
_PER_PARTITION = ("topic", "partition")

# Replication.
PARTITIONS = gauge(
    "partitions", "Partitions with a replica on this broker.", _REPLICAS.format("PartitionCount")
)
LEADERS = gauge("leaders", "Partitions that this broker leads.", _REPLICAS.format("LeaderCount"))
UNDER_REPLICATED = gauge(
    "under_replicated_partitions",
    "Partitions that this broker leads and that have fewer in-sync replicas than replicas.",
    _REPLICAS.format("UnderReplicatedPartitions"),
)
UNDER_MIN_ISR = gauge(
    "under_min_isr_partitions",
    (
        "Partitions that this broker leads and that have fewer in-sync replicas than "
        "min.insync.replicas: producers with acks=all are refused."
    ),
    _REPLICAS.format("UnderMinIsrPartitionCount"),
)
AT_MIN_ISR = gauge(
    "at_min_isr_partitions",
    (
        "Partitions that this broker leads and that have exactly min.insync.replicas in-sync "
        "replicas: the next failure stops producers with acks=all."
    ),
    _REPLICAS.format("AtMinIsrPartitionCount"),
)
REASSIGNING = gauge(
    "reassigning_partitions",
    "Partitions that this broker leads and that are being reassigned.",
    _REPLICAS.format("ReassigningPartitions"),
)
OFFLINE_REPLICAS = gauge(
    "offline_replicas",
    (
        "Replicas of this broker in a failed log directory, also in one that failed before the "
        "start, or with damaged files."
    ),
    _REPLICAS.format("OfflineReplicaCount"),
)
ISR_SHRINKS = counter("isr_shrinks", "Replicas left an ISR.", _REPLICAS.format("IsrShrinksPerSec"))
ISR_EXPANDS = counter(
    "isr_expands", "Replicas joined an ISR.", _REPLICAS.format("IsrExpandsPerSec")
)
ISR_UPDATES_FAILED = counter(
    "isr_updates_failed",
    "Changes of an ISR that the controller refused.",
    _REPLICAS.format("FailedIsrUpdatesPerSec"),
)
PURGATORY = gauge(
    "purgatory_size",
    "Requests that wait: produce requests for replicas, fetches for records.",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation={operation}",
    ("operation",),
)
FETCH_SESSIONS = gauge(
    "fetch_sessions",
    "Open fetch sessions.",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
)
REPLICATION_THROTTLE = gauge(
    "replication_throttle_seconds",
    "How long throttled replicas must wait now; 0 if there is no throttle or it is not exceeded.",
    "",
    ("side",),
)
REPLICATION_THROTTLE_RATE = gauge(
    "replication_throttle_rate_bytes",
    "Bytes per second that throttled replicas may copy; absent if there is no throttle.",
    "",
    ("side",),
)
REPLICATION_THROTTLED_BYTES = counter(
    "replication_throttled_bytes",
    "Bytes of throttled replicas that were copied.",
    "kafka.server:type={side}Replication,attribute=byte-rate",
    ("side",),
)
REPLICA_LAG = gauge(
    "replica_max_lag",
    "The most offsets that an in-sync or other follower of a led partition is behind its leader.",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
)

# Traffic.
BYTES_IN = counter(
    "topic_received_bytes",
    "Bytes of produced batches, by topic.",
    _TOPIC.format("BytesInPerSec"),
    _PER_TOPIC,
)
MESSAGES_IN = counter(
    "topic_received_messages",
    "Produced records, by topic.",
    _TOPIC.format("MessagesInPerSec"),
    _PER_TOPIC,
)
BYTES_OUT = counter(
    "topic_sent_bytes",
    "Bytes of batches sent to consumers, by topic.",
    _TOPIC.format("BytesOutPerSec"),
    _PER_TOPIC,
)
BROKER_BYTES_IN = counter(
    "received_bytes",
    "Bytes of produced batches.",
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
)
BROKER_MESSAGES_IN = counter(
    "received_messages",
    "Produced records.",
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
)
BROKER_BYTES_OUT = counter(
    "sent_bytes",
    "Bytes of batches sent to consumers.",
    "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
)
REPLICATION_BYTES_IN = counter(
    "replication_received_bytes",
    "Bytes of batches that this broker fetched as a follower.",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)
REPLICATION_BYTES_OUT = counter(
    "replication_sent_bytes",
    "Bytes of batches sent to followers.",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)

# Logs.
TOPIC_LOG_SIZE = gauge(
    "topic_log_bytes",
    "Size of the logs of a topic on this broker.",
    "kafka.log:type=Log,name=Size,topic={topic}",
    _PER_TOPIC,
)
DIRECTORY_LOG_SIZE = gauge(
    "log_directory_bytes",
    "Size of the logs in a log directory.",
    "kafka.log:type=Log,name=Size",
    ("directory",),
)
DIRECTORY_VOLUME = gauge(
    "log_directory_volume_bytes",
    "Size of the volume of a log directory, and what is free of it.",
    "",
    ("directory", "part"),
)
DIRECTORY_STALLED = gauge(
    "log_directory_stalled",
    "1 if the disk of a log directory has not answered a read within a second.",
    "",
    ("directory",),
)
DIRECTORY_OFFLINE = gauge(
    "log_directory_offline",
    "1 if the log directory has failed and is offline.",
    "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory={directory}",
    ("directory",),
)
OFFLINE_DIRECTORIES = gauge(
    "offline_log_directories",
    "Log directories that have failed.",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
LOG_SIZE = gauge("log_bytes", "Size of a partition's log.", _LOG.format("Size"), _PER_PARTITION)
LOG_START = gauge(
    "log_start_offset", "The log start offset.", _LOG.format("LogStartOffset"), _PER_PARTITION
)
LOG_END = gauge(
    "log_end_offset", "The log end offset.", _LOG.format("LogEndOffset"), _PER_PARTITION
)
HIGH_WATERMARK = gauge(
    "high_watermark",
    "The high watermark.",
    "",
    _PER_PARTITION,
)
LOG_SEGMENTS = gauge(
    "log_segments",
    "Segments of a partition's log.",
    _LOG.format("NumLogSegments"),
    _PER_PARTITION,
)
IN_SYNC_REPLICAS = gauge(
    "in_sync_replicas",
    "In-sync replicas of a partition that this broker leads.",
    "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic={topic},partition={partition}",
    _PER_PARTITION,
)
LOG_FLUSH_SECONDS = histogram(
    "log_flush_seconds",
    "Time of syncs of a log to disk, with their wait for a thread.",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
LOG_RECOVERY_SECONDS = gauge(
    "log_recovery_seconds",
    "How long the node took to open its logs at its start.",
)
LOGS_RECOVERED = gauge(
    "logs_recovered",
    "Logs that were checked batch by batch at the start, after an unclean shutdown.",
)
DAMAGED_LOGS = gauge("damaged_logs", "Logs with damaged files, which need an operator.")

# Compaction.
COMPACTIONS = counter(
    "compactions",
    "Completed compactions of logs.",
)
COMPACTION_SECONDS = counter(
    "compaction_seconds",
    "Time of completed compactions.",
)
COMPACTION_BYTES = counter(
    "compaction_bytes",
    "Bytes that compactions read and wrote.",
)
COMPACTION_RECORDS_REMOVED = counter(
    "compaction_removed_records", "Records that compactions removed."
)
COMPACTIONS_FAILED = counter(
    "compactions_failed",
    "Compactions that ended without a result: the log changed, or the disk failed.",
)
UNCLEANABLE = gauge(
    "uncleanable_partitions",
    "Partitions that are not compacted any more because their logs are damaged.",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
)
