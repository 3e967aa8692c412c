"""Every bound on what comes from outside, with its reason. A limit that is a Kafka setting lives in
`config` instead."""

from __future__ import annotations

# A message of the wire protocol may not make the decoder build more objects than this, however many
# its counts claim. A metadata answer for 100,000 partitions needs about 400,000 (partitions and the
# ids in their lists).
MAX_DECODED_OBJECTS = 1_000_000

# The same for a request, which a broker decodes on its event loop: a tenth of a second at worst.
# Kafka's own clients send at most some ten thousand partitions in one.
MAX_REQUEST_OBJECTS = 100_000

# Kafka's strings and legacy arrays have an int16 or int32 length; compact ones an unsigned varint
# of at most 5 bytes.
MAX_VARINT_BYTES = 5

# Tagged fields of one struct. The protocol has at most five today; unknown ones are skipped, not
# kept.
MAX_TAGGED_FIELDS = 1_000

# A compressed batch may not unfold to more than this. Producers build batches of at most
# max.request.size (1 MB by default) before compression, and brokers take at most message.max.bytes
# after it; 256 MB leaves room for every setting seen in the field.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

# A decompressed batch may not hold more records than bytes: the smallest record is 7 bytes.
MIN_RECORD_BYTES = 7

# A record batch: the header of format v2, and the most that one batch may be (message.max.bytes is
# an int32 in Kafka).
BATCH_HEADER_BYTES = 61
MAX_BATCH_BYTES = 2**31 - 1

# Headers of one record: Kafka has no limit of its own; a batch bounds them too, but a lying count
# should fail early.
MAX_RECORD_HEADERS = 100_000

# Text checkpoints (leader epochs, recovery points): a file that claims more entries than this is
# damaged.
MAX_CHECKPOINT_ENTRIES = 10_000_000

# server.properties: longer files or lines are a mistake (a log file given by accident, say).
MAX_PROPERTIES_BYTES = 1024 * 1024

# Topic names become directory names: Kafka allows 249 characters, so that "-<partition>" and
# "-delete" suffixes still fit in 255.
MAX_TOPIC_NAME_LENGTH = 249

# A batch's offsets are kept in the index relative to its segment's base in 32 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1

# Files kept open by the logs of one node. The hard limit of many machines is 20,000, and
# connections need theirs.
MAX_OPEN_LOG_FILES = 4_096

# Indexes of sealed segments kept in memory by the logs of one node: those of 32 segments of 1 GB
# with an entry every 4 KB.
MAX_CACHED_INDEX_BYTES = 64 * 1024 * 1024

# An unclean tail longer than this is scanned in the child process, so that the loop does not stall:
# below, it takes some milliseconds.
MAX_INLINE_RECOVERY_BYTES = 1024 * 1024

# Connections that the kernel holds for us between two turns of the event loop: a whole cluster's
# clients come back at once after a restart.
ACCEPT_BACKLOG = 1_024

# Threads for blocking calls of one node. They wait for the disk, not for a core; more than a few
# only queue up in the kernel.
OFFLOAD_THREADS = 8

# One message to or from the child process: arguments and results are names, numbers and offset
# lists, never record data.
MAX_CHILD_MESSAGE_BYTES = 256 * 1024 * 1024

# Snappy's densest element copies 64 bytes for 3: a block that claims to unfold to more than 22
# times its size lies.
SNAPPY_MAX_RATIO = 22

# Uuids kept by the decoder, so that the same topic id need not be built again for each request;
# beyond, the least used are dropped.
MAX_CACHED_UUIDS = 8_192

# Kafka refuses strings longer than this, also in flexible versions, whose length prefix could say
# more.
MAX_STRING_BYTES = 2**15 - 1

# Arrays of up to this many numbers have their format kept by the codec, one for each length; longer
# ones are rare enough to build it anew.
MAX_KEPT_FORMATS = 100

# A response that our own client takes: fetch.max.bytes is 50 MB by default, and one batch may go
# beyond it. The bytes with which TLS and HTTP peers answer read as larger sizes, so that they are
# told apart at once.
MAX_RESPONSE_BYTES = 256 * 1024 * 1024

# What one read from a socket takes at most. One such buffer serves all connections of a node that
# hold no part of a frame, so that idle ones cost nothing; larger reads bring no more throughput on
# loopback.
READ_BYTES = 256 * 1024

# The first buffer of a connection that holds a part of a frame. It doubles with what has really
# come: four bytes that announce 100 MB take no 100 MB.
MIN_RECEIVE_BYTES = 4 * 1024

# Requests of one connection that wait for their answers; beyond, we stop reading. Java clients send
# five ahead, librdkafka up to a million.
MAX_INFLIGHT_REQUESTS = 512

# Bytes of them: of requests under way, and of answers that wait for an earlier one to leave.
MAX_INFLIGHT_BYTES = 32 * 1024 * 1024

# Requests of one connection handled in one turn of the event loop, so that a client that pipelines
# thousands does not stall the others.
MAX_REQUESTS_A_TURN = 32

# A range of a file is read and written in pieces of this size, each when the one before has left.
SEND_PIECE_BYTES = 1024 * 1024

# A range of a file of at most this size is read and leaves together with the bytes around it, in
# one system call.
SMALL_RANGE_BYTES = 64 * 1024

# How long a connection that we close may take to read what was written to it before.
CLOSE_GRACE_S = 5.0

# How often connections are looked at for idleness and for buffers that they no longer need. 10,000
# of them take some milliseconds.
SWEEP_INTERVAL_S = 5.0

# Partitions in one answer to DescribeTopicPartitions, which goes on by a cursor (Kafka's
# max.request.partition.size.limit).
MAX_DESCRIBED_PARTITIONS = 2_000

# Bytes of records in one fetch response, whatever its request allows (Kafka's fetch.max.bytes).
MAX_FETCH_BYTES = 55 * 1024 * 1024

# Incremental fetch sessions of one node (Kafka's max.incremental.fetch.session.cache.slots), how
# long one must have been idle before another may have its place, and the partitions of all of them:
# some hundred bytes each.
MAX_FETCH_SESSIONS = 1_000
FETCH_SESSION_IDLE_SECONDS = 120
MAX_FETCH_SESSION_PARTITIONS = 200_000

# One request may not make the controller write more records than this, all of which are one batch
# of the metadata log. Kafka's own bound.
MAX_RECORDS_PER_DECISION = 10_000

# One line of `penstock produce`: no broker takes a record that large by default (message.max.bytes
# is 1 MB), and a file without line ends should not be read into memory whole.
MAX_PRODUCED_LINE_BYTES = 64 * 1024 * 1024

# How densely a range of a file is probed for what is not in memory. The kernel reads ahead and
# reclaims by larger runs than this.
PROBE_EVERY_BYTES = 64 * 1024

# The same where the kernel says that nothing is missing: then some may be on its way from the disk,
# in the order in which it was asked for.
PROBE_COMING_EVERY_BYTES = 256 * 1024

# What is asked of a disk beyond what a reader of old records waits for.
READ_AHEAD_BYTES = 4 * 1024 * 1024

# What a transport holds of an answer before it asks for a pause. It goes on when all of it has
# left: only then may a file be sent.
WRITE_BUFFER_BYTES = 64 * 1024

# Memory for the requests of all connections: those under way, and receive buffers. Beyond, only one
# connection is read at a time. Eight connections at their own bound; a request of
# socket.request.max.bytes (100 MB) has room beside others.
MAX_NODE_INFLIGHT_BYTES = 256 * 1024 * 1024

# How long it may be short before whoever holds most is closed: what is under way ends long before,
# unless a peer means harm.
MEMORY_SHORT_S = 10.0

# A replica that moves to another log directory is copied in pieces of this size, each read by a
# thread: checking and writing one takes the loop some tenths of a millisecond.
MOVE_PIECE_BYTES = 256 * 1024

# So much of a copy may be unsynced: with more the kernel would make writers wait, the loop among
# them.
MOVE_UNSYNCED_BYTES = 16 * 1024 * 1024

# How long the last step of a move may hold back flushes and truncations. Where appends outrun it,
# it is tried again later.
MOVE_LAST_STEP_SECONDS = 1.0

# A segment remembers where its last batches lie, for readers at its end. A reader that keeps up is
# rarely further behind; some kilobytes for each partition that is written to.
REMEMBERED_TAIL_BATCHES = 8

# So many partitions a fetch reads before others may have their turn on the event loop: some
# milliseconds.
FETCH_PARTITIONS_A_TURN = 200

# The name of a file or directory, on every file system that Kafka's directories may lie on.
MAX_FILE_NAME_BYTES = 255

# How long a follower's fetch that has nothing but a new high watermark to bring is held back, so
# that records may come with it. Under load they always do; otherwise readers of followers see a
# record this much later.
STALE_WATERMARK_S = 0.005

# A batch of the metadata log, which one decision fills at most (Kafka's own bound), and what a
# replica of it fetches at once: decoding and applying so much takes some ten milliseconds.
MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
METADATA_FETCH_BYTES = 256 * 1024

# Bytes of a leader's answer that a follower appends before others get their turn on the event loop:
# about a millisecond.
FOLLOWER_APPEND_BYTES = 1024 * 1024

# A snapshot of the metadata that a replica takes from its leader: that of a cluster with some ten
# million partitions.
MAX_SNAPSHOT_BYTES = 2 * 1024 * 1024 * 1024

# Bytes of one connection read in one turn of the event loop, as far as a single read does not bring
# more: what is produced is written to a file meanwhile, which takes some milliseconds a megabyte.
READ_BYTES_A_TURN = 512 * 1024

# Records that become one Arrow batch for Spark: beyond so many (decompressed) bytes or rows the
# rest is left for the next. One of Kafka's is not divided by its bytes, which
# MAX_DECOMPRESSED_BYTES bounds; together they stay below the 2 GB of an Arrow column.
MAX_COLUMNS_BYTES = 64 * 1024 * 1024
MAX_COLUMNS_ROWS = 1_000_000

# Rows that Spark's sink puts together before it divides them among partitions. Spark gives about a
# megabyte at a time; with many partitions the record batches made of that alone would be small.
SPARK_GATHERED_BYTES = 4 * 1024 * 1024

# A log that has grown by so much is begun to be written out, long before the kernel would: much of
# it unwritten makes writers wait.
WRITE_BACK_BYTES = 8 * 1024 * 1024

# How often the uniform assignor goes over the subscriptions of a group whose members want different
# topics. Two or three times are enough but for long chains of members that share topics two by two,
# which may then stay a little uneven.
MAX_LEVELLING_PASSES = 32

# A regular expression by which a consumer subscribes: its length, the size of the program that RE2
# makes of it, and that times the characters of all topics' names that are tried. A step takes 15 ns
# at worst, so that the worst expression holds up the loop for less than a second, once; usual ones
# take a hundredth of that.
MAX_REGEX_CHARACTERS = 1_000
MAX_REGEX_PROGRAM = 1_000
MAX_REGEX_STEPS = 50_000_000

# What one line about a rebalance names as its reasons, and how much of what a client says about its
# own.
MAX_REBALANCE_REASONS = 8
MAX_CLIENT_REASON_LENGTH = 200

# Offsets that a shard looks at in one turn of the event loop to see whether they have expired: some
# milliseconds.
EXPIRY_OFFSETS_A_TURN = 5_000

# What a coordinator of groups reads of its log at once while it loads, and the records that it
# takes in before others get their turn on the event loop: one or two milliseconds each.
GROUP_LOAD_BYTES = 64 * 1024
GROUP_RECORDS_A_TURN = 128

# Group ids whose partition of __consumer_offsets is remembered: working it out takes microseconds,
# and heartbeats come by the thousand.
MAX_CACHED_GROUP_IDS = 8_192

# Segments that one compaction makes into one: taking them out of service renames four files each,
# on the loop.
MAX_COMPACTED_TOGETHER = 32

# What the child process compacts before others get their turn there (a time is looked for, a
# produced batch is recompressed): some ten milliseconds.
COMPACTION_SLICE_BYTES = 1024 * 1024

# What a key costs in the map of a compaction beside its own bytes: an entry of a dict, a bytes
# object and an int.
COMPACTION_KEY_OVERHEAD_BYTES = 200

# A produced batch of at most so many bytes and records is opened on the loop where its topic asks
# for it (compacted, or recompressed): less than the way to the child process and back costs.
MAX_INLINE_OPENED_BYTES = 16 * 1024
MAX_INLINE_OPENED_RECORDS = 200

# How often members of a consumer group are asked to send heartbeats while its assignment changes,
# whatever is asked of them otherwise (5 s by default): each heartbeat takes a member one step
# towards its new assignment, and there are two or three of them.
SETTLING_HEARTBEAT_MS = 500

# Member ids that one group has given out to clients which have not come back with them. Beyond, the
# oldest is forgotten, and its client asks for another. Kafka has no bound but the session timeout,
# which the client chooses.
MAX_PENDING_MEMBERS = 10_000
