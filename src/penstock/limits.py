"""Every bound that is not a Kafka setting, with its reason. Kafka's settings are in `config`.

Bounds on input protect memory and the event loop from hostile or broken peers. Bounds on work per
turn keep each turn of the event loop short.
"""

from __future__ import annotations

# Decoding of wire messages

# Objects that the decoder builds for one message, whatever its counts claim. A Metadata response
# for 100,000 partitions needs about 400,000: partitions and the ids in their lists.
MAX_DECODED_OBJECTS = 1_000_000

# The same for a request, which a broker decodes on its event loop: 0.1 s at worst. Kafka's clients
# send at most some ten thousand partitions in a request.
MAX_REQUEST_OBJECTS = 100_000

# The longest encoding of an unsigned 32-bit varint: lengths and counts of compact types.
MAX_VARINT_BYTES = 5

# Tagged fields of one struct. The protocol has at most five today. Unknown ones are skipped.
MAX_TAGGED_FIELDS = 1_000

# Kafka refuses longer strings, also in flexible versions, whose length prefix allows more.
MAX_STRING_BYTES = 2**15 - 1

# uuids cached by the decoder, so that topic ids are not built again for each request. The cache
# evicts the least recently used.
MAX_CACHED_UUIDS = 8_192

# The codec caches the struct formats of number arrays up to this length. Longer arrays are rare.
MAX_KEPT_FORMATS = 100

# Records and batches

# What a compressed batch may decompress to. Producers build batches of at most max.request.size (1
# MB by default) before compression, and brokers accept at most message.max.bytes after it. 256 MB
# leaves room for every setting in use.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

# The smallest record. It bounds the record count of a decompressed batch.
MIN_RECORD_BYTES = 7

# The header of record batch format v2, and the largest batch: message.max.bytes is an int32.
BATCH_HEADER_BYTES = 61
MAX_BATCH_BYTES = 2**31 - 1

# Headers of one record. Kafka has no limit; the batch size bounds them too, but an invalid count
# should fail early.
MAX_RECORD_HEADERS = 100_000

# Snappy's densest element copies 64 bytes for 3 bytes of input. A block that claims a higher ratio
# is invalid.
SNAPPY_MAX_RATIO = 22

# A produced batch up to this size is decompressed on the event loop if its topic needs that (it is
# compacted, or recompresses). That costs less than a round trip to the child process.
MAX_INLINE_OPENED_BYTES = 16 * 1024
MAX_INLINE_OPENED_RECORDS = 200

# Files

# Text checkpoints (leader epochs, recovery points). A file that claims more entries is damaged.
MAX_CHECKPOINT_ENTRIES = 10_000_000

# server.properties. A larger file was probably given by mistake.
MAX_PROPERTIES_BYTES = 1024 * 1024

# Topic names become directory names. Kafka allows 249 characters, so that the suffixes
# "-<partition>" and "-delete" still fit into 255.
MAX_TOPIC_NAME_LENGTH = 249

# A file name, on every file system that Kafka's log directories may be on.
MAX_FILE_NAME_BYTES = 255

# Logs

# An index stores a batch's offset relative to its segment's base offset in 32 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1

# Files that the logs of one node keep open. The hard limit of many machines is 20,000, and
# connections need descriptors too.
MAX_OPEN_LOG_FILES = 4_096

# Indexes of sealed segments that the logs of one node keep in memory: those of 32 segments of 1 GB
# with an entry every 4 KB.
MAX_CACHED_INDEX_BYTES = 64 * 1024 * 1024

# The child process scans an unclean tail longer than this. Scanning a shorter one on the event loop
# takes some milliseconds.
MAX_INLINE_RECOVERY_BYTES = 1024 * 1024

# Batches, or producers of a snapshot, that a truncation replays in one turn of the event loop to
# rebuild the producer state, and the bytes of the log that they may span: about a millisecond.
REPLAYED_PER_STEP = 200
REPLAYED_BYTES_PER_STEP = 256 * 1024

# A segment remembers the positions of its last batches for readers at its end. A reader that keeps
# up is rarely further behind. Costs some kilobytes per written partition.
REMEMBERED_TAIL_BATCHES = 8

# A segment remembers the batches at which its last reads ended: sequential readers continue there.
REMEMBERED_READ_ENDS = 16

# Entries of an offset index that a lookup checks, backwards, if the one that it used is wrong. A
# flipped bit makes one entry wrong; an index of which more are wrong is not used.
CHECKED_INDEX_ENTRIES = 8

# A log starts to write back after this much growth, long before the kernel does, which throttles
# writers if too many pages are dirty.
WRITE_BACK_BYTES = 8 * 1024 * 1024

# Moving a replica to another log directory copies pieces of this size, each read by a thread.
# Checking and writing a piece takes some tenths of a millisecond on the event loop.
MOVE_PIECE_BYTES = 256 * 1024

# How much of such a copy may be unsynced. With more, the kernel would throttle writers, the event
# loop among them.
MOVE_UNSYNCED_BYTES = 16 * 1024 * 1024

# How long the last step of a move may block flushes and truncations. If appends outrun it, it is
# retried later.
MOVE_LAST_STEP_SECONDS = 1.0

# Logs whose retention or compaction is checked in one turn of the event loop: about a millisecond,
# unless segments expire.
RETENTION_LOGS_A_TURN = 200

# Logs whose idle producers are forgotten in one turn of the event loop: less than a millisecond,
# with some producers per log.
EXPIRED_LOGS_A_TURN = 200

# Logs that a node which stops saves before it closes the files that it used for them.
CLOSED_LOGS_A_TURN = 100

# Rows of a checkpoint that are made in one turn of the event loop: about a millisecond.
CHECKPOINTED_LOGS_A_TURN = 1_000

# Segments that one compaction merges into one. Replacing them renames four files each, on the event
# loop.
MAX_COMPACTED_TOGETHER = 32

# What the child process compacts before it reports to the event loop, which paces it and swaps in
# finished segments: some ten milliseconds.
COMPACTION_SLICE_BYTES = 1024 * 1024

# The memory of a key in a compaction's offset map besides its own bytes: a dict entry, a bytes
# object and an int.
COMPACTION_KEY_OVERHEAD_BYTES = 200

# Reads from the page cache

# The distance of probes for pages that are not in memory. The kernel reads ahead and reclaims in
# larger runs.
PROBE_EVERY_BYTES = 64 * 1024

# The same if the kernel reports all pages as cached. Some may still be on their way from the disk,
# in the order in which they were requested.
PROBE_COMING_EVERY_BYTES = 1024 * 1024

# How much of a file is checked at once for a sequential reader, and how long a page that was
# written or checked counts as being in memory. If the kernel drops it earlier, the event loop waits
# for the disk.
PAGE_CACHE_CHECK_BYTES = 8 * 1024 * 1024
PAGE_CACHE_TRUST_S = 1.0

# How far a read of old records reads ahead of what its reader waits for.
READ_AHEAD_BYTES = 4 * 1024 * 1024

# Threads and the child process

# Threads for blocking calls of one node, and for its reads. They wait for the disk, not for a core;
# more would only queue in the kernel. Reads have their own: a slow disk with many cold readers must
# not delay the syncs of the metadata quorum.
OFFLOAD_THREADS = 8
OFFLOAD_READ_THREADS = 8

# The interval at which work is repeated that failed because too many files were open. Connections
# that end meanwhile give descriptors back.
FILES_RETRY_S = 0.5

# A message to or from the child process. Arguments and results are names, numbers and offset lists,
# never record data.
MAX_CHILD_MESSAGE_BYTES = 256 * 1024 * 1024

# Python's garbage collector

# Collections of the second generation between two full ones; Python's default is 10. A full one
# takes a hundred milliseconds with 10,000 partitions and 10,000 connections, and all clients wait
# for it. Between two full ones, about 700,000 objects can be added: cyclic garbage of old objects
# takes at most some hundred megabytes.
FULL_COLLECTION_EVERY = 100

# A broker calls gc.freeze after this many created or changed partitions, of about 30 objects each.
# Later collections would traverse all of them.
PARTITIONS_PER_FREEZE = 1_000

# Connections

# Connections that the kernel queues between two turns of the event loop. After a restart all
# clients of a cluster reconnect at the same time.
ACCEPT_BACKLOG = 1_024

# Descriptors of a node besides logs and accepted connections: its own connections to other nodes,
# listeners, locks, the child process.
OTHER_DESCRIPTORS = 256

# Connections that wait for their peers to take a range of a file, and that the event loop watches
# by a second descriptor. Others look again after this time, and after twice as long each time that
# the peer took nothing, up to the maximum.
MAX_WATCHED_SOCKETS = 1_000
UNWATCHED_SOCKET_S = 0.05
UNWATCHED_SOCKET_MAX_S = 1.0

# Descriptors that connections leave to files, to connections that wait to be accepted, and to the
# others above; half of all descriptors if that is less.
RESERVED_DESCRIPTORS = MAX_OPEN_LOG_FILES + MAX_WATCHED_SOCKETS + ACCEPT_BACKLOG + OTHER_DESCRIPTORS

# How often refused connections, and those that are closed for their memory, are logged.
REFUSALS_LOGGED_S = 10.0

# How long a partition remembers that it refused a batch: batches that a producer sent behind it,
# without waiting, are looked at within this time.
REFUSAL_REMEMBERED_S = 5.0

# A response that our client accepts: fetch.max.bytes is 50 MB by default, and one batch may exceed
# it. The first bytes of TLS and HTTP read as larger sizes, so such peers are recognised
# immediately.
MAX_RESPONSE_BYTES = 256 * 1024 * 1024

# One read from a socket. All connections of a node without a partial frame share one such buffer,
# so that idle ones cost nothing. Larger reads bring no more throughput on loopback.
READ_BYTES = 256 * 1024

# The first buffer of a connection with a partial frame. It doubles with the bytes that have
# arrived: four bytes that announce 100 MB do not allocate 100 MB.
MIN_RECEIVE_BYTES = 4 * 1024

# Bytes of one connection read in one turn of the event loop, unless a single read brings more.
# Produced records are written to a file meanwhile, which takes some milliseconds per megabyte.
READ_BYTES_A_TURN = 512 * 1024

# Requests of one connection that wait for their responses. Beyond, the broker stops reading. Java
# clients send five ahead, librdkafka up to a million.
MAX_INFLIGHT_REQUESTS = 512

# Their bytes: requests in progress, and responses that wait for an earlier one.
MAX_INFLIGHT_BYTES = 32 * 1024 * 1024

# How long the requests of one connection are handled in one turn of the event loop, so that a
# client that pipelines thousands does not delay the others. The last request may take longer.
TURN_S = 0.002

# Memory that the connections of clients hold together: receive buffers with parts of requests,
# decoded requests in progress, responses that have not left. It is the limit of eight connections;
# a request of socket.request.max.bytes (100 MB) fits beside others.
MAX_NODE_INFLIGHT_BYTES = 256 * 1024 * 1024

# The same for the listeners of controllers and between brokers, so that clients cannot use it up.
# Their requests are small.
RESERVED_INFLIGHT_BYTES = 64 * 1024 * 1024

# The receive buffer of a connection while that memory is short: a request with one batch of Kafka's
# default batch.size (16 KB) fits. 10,000 connections with a part of a request then take 200 MB.
SHORT_READ_BYTES = 20 * 1024

# The memory of a decoded request without records, by the bytes of its frame. A Fetch of 3 MB with
# 100,000 partitions takes 34 MB.
DECODED_BYTES_PER_BYTE = 12

# Requests and responses of one connection do not count up to this size: counting takes longer than
# some requests do. While memory is short, a connection that holds more takes no request.
SMALL_HELD_BYTES = 16 * 1024

# Over how long the rate of a peer is measured while memory is short: longer than a lost packet
# delays a request, and for responses longer than a peer on the same host, which acknowledges 64 KB
# at a time, takes for as much at MIN_FRAME_BYTES_PER_S.
REQUEST_WINDOW_S = 1.0
RESPONSE_WINDOW_S = 5.0

# How often slow connections are looked for while memory is short: less often, up to the maximum, if
# many hold memory. How many are looked at, and how many are closed and may grow, in one turn of the
# event loop: the former takes ten microseconds each, the latter some ten.
MEMORY_CHECK_S = 0.05
MAX_MEMORY_CHECK_S = 1.0
CHECKED_MEMBERS_A_TURN = 200
EVICTIONS_A_TURN = 50

# A connection that holds less is not closed for its memory: that would free next to nothing. Every
# started request holds MIN_RECEIVE_BYTES, a response that is a range of a file some bytes.
EVICTED_BYTES = 1024

# Connections that are read again in one turn of the event loop when memory is no longer short. Each
# reads up to READ_BYTES at once.
RESUMED_A_TURN = 10

# A started request must arrive at this rate after this time, whatever its size. Clients give up a
# request after 30 s by default (request.timeout.ms). While memory is short, peers that send a
# request or take responses at a lower rate are closed earlier.
FRAME_GRACE_S = 30.0
MIN_FRAME_BYTES_PER_S = 16 * 1024

# A range of a file is read and written in pieces of this size, each after the previous one was
# sent.
SEND_PIECE_BYTES = 1024 * 1024

# What a connection sends from files in one turn of the event loop, if its socket takes so much: a
# millisecond.
SEND_BYTES_A_TURN = 4 * 1024 * 1024

# The send buffer of a connection from the same host, if socket.send.buffer.bytes is not set. Such a
# client copies one part of a response while the broker sends the next. With the megabytes that the
# kernel chooses, it starts after the broker has sent everything, and consumes a third less. Kafka's
# default is 100 KB for all connections.
SAME_HOST_SEND_BUFFER_BYTES = 256 * 1024

# A range of a file up to this size is read into memory and sent together with the bytes around it,
# in one system call.
SMALL_RANGE_BYTES = 64 * 1024

# What a transport buffers of a response before it pauses the writer. The writer resumes when the
# buffer is empty, because only then may sendfile be used.
WRITE_BUFFER_BYTES = 64 * 1024

# How long a closing connection may take to send what was written to it.
CLOSE_GRACE_S = 5.0

# How often connections are checked for idleness, for requests that do not complete and for buffers
# that they no longer need, and how many are checked in one turn of the event loop: a millisecond.
SWEEP_INTERVAL_S = 5.0
CHECKS_A_TURN = 500

# Requests

# Partitions in one DescribeTopicPartitions response, which continues with a cursor (Kafka's
# max.request.partition.size.limit).
MAX_DESCRIBED_PARTITIONS = 2_000

# Partitions of such a response that are built in one turn of the event loop: a millisecond.
DESCRIBED_A_TURN = 100

# Topics in encoded form that a node keeps for Metadata responses: one version of 100,000 partitions
# takes 6 MB, and clients of one kind use one or two versions.
MAX_CACHED_METADATA_BYTES = 64 * 1024 * 1024

# How long a Metadata request encodes topics in one turn of the event loop, and after how many
# partitions it looks at the clock.
METADATA_SLICE_S = 0.002
METADATA_SLICE_PARTITIONS = 32

# Names of a Metadata request that are looked at in one turn of the event loop before the response
# is built: some milliseconds.
METADATA_SLICE_TOPICS = 1_000

# Bytes of records in one Fetch response, whatever the request allows (Kafka's fetch.max.bytes).
MAX_FETCH_BYTES = 55 * 1024 * 1024

# Fetch sessions of a node's consumers (Kafka's max.incremental.fetch.session.cache.slots), how long
# one must be idle before another may evict it, and the partitions of all of them: some hundred
# bytes each. Each follower has one session besides.
MAX_FETCH_SESSIONS = 1_000
FETCH_SESSION_IDLE_SECONDS = 120
MAX_FETCH_SESSION_PARTITIONS = 200_000

# Partitions that a fetch reads in one turn of the event loop: some milliseconds.
FETCH_PARTITIONS_A_TURN = 200

# Transactional ids that ListTransactions looks at and encodes in one turn of the event loop: some
# milliseconds.
LISTED_TRANSACTIONS_A_TURN = 2_000

# Partitions of a fetch whose response is encoded, and that are no longer watched after it, in one
# turn of the event loop: some milliseconds.
ANSWERED_PARTITIONS_A_TURN = 500
UNWATCHED_PARTITIONS_A_TURN = 2_000

# How long one callback of the event loop completes delayed fetches and produce requests. The others
# wait for the next iteration, so that other connections have their turn.
ACTIONS_S = 0.002

# Replication and metadata

# How long a follower's fetch waits if it could return only a new high watermark, so that records
# may come with it. Under load they always do. Otherwise readers of followers see a record this much
# later.
STALE_WATERMARK_S = 0.005

# Partitions that one Fetch request of a follower lists, and as many that it forgets; and partitions
# in its response. Either side handles them in some milliseconds. The next request and response have
# the others.
MAX_PARTITIONS_PER_FETCH = 2_000

# Partitions whose state a broker changes, whose ISR it reviews, and which it finds unchanged, in
# one step of a metadata change: about a millisecond. If a broker fails, its peers change and review
# up to 100,000.
CHANGED_PARTITIONS_PER_STEP = 20
COMPARED_PARTITIONS_PER_STEP = 5_000
REVIEWED_PARTITIONS_PER_STEP = 200

# Partitions of two images that a node compares in one step, some milliseconds, when it starts or
# loads a snapshot. A topic or the settings of a resource take as long as so many partitions.
COMPARED_PARTITIONS_PER_TOPIC = 10

# Directories of partitions in which a starting broker looks for the mark of a move, in one turn of
# the event loop: a few milliseconds.
MOVED_LOGS_A_TURN = 500

# Steps of a metadata change per turn of the event loop. A step creates one partition, which takes
# up to a millisecond.
METADATA_STEPS_PER_TURN = 4

# Partitions and in-sync replicas in one AlterPartition request: 1,000 partitions with three
# replicas, on which the controller decides in some ten milliseconds.
MAX_ALTER_PARTITION_OBJECTS = 4_000

# Replicas in one AssignReplicasToDirs request. Kafka has the same bound.
MAX_ASSIGNMENTS_PER_REQUEST = 2_250

# Bytes of a leader's response that a follower appends in one turn of the event loop: about a
# millisecond.
FOLLOWER_APPEND_BYTES = 512 * 1024

# Bytes of a partition that catches up and are not synced. Above this the follower syncs them before
# it fetches more: otherwise the kernel makes the event loop wait in a write until other pages are
# on disk.
CATCH_UP_UNSYNCED_BYTES = 32 * 1024 * 1024

# Records that one request may make the controller write, all in one batch of the metadata log.
# Kafka has the same bound.
MAX_RECORDS_PER_DECISION = 10_000

# Partitions that the controller changes, and records of the metadata log that a node replays, in
# one turn of the event loop: about five milliseconds. If a broker fails, the controller changes up
# to 100,000.
DECIDED_PARTITIONS_A_TURN = 300
REPLAYED_METADATA_RECORDS_A_TURN = 500

# Partitions that the controller looks at in one turn of the event loop when it lists
# reassignments: about three milliseconds.
LISTED_PARTITIONS_A_TURN = 20_000

# Partitions that a client names in one AlterPartitionReassignments request: with five replicas each
# they are an eighth of what a broker decodes (MAX_REQUEST_OBJECTS).
REASSIGNED_PARTITIONS_A_REQUEST = 2_000

# A batch of the metadata log (Kafka has the same bound), and what a replica of the log fetches at a
# time: decoding and applying that much takes some ten milliseconds.
MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
METADATA_FETCH_BYTES = 256 * 1024

# Observers of the quorum that its leader describes. The id of an observer is what a request claims.
MAX_QUORUM_OBSERVERS = 10_000

# Voters of the quorum. Every record waits for a majority of them, and each sends its votes to all
# others: quorums have three or five.
MAX_VOTERS = 50

# Addresses of controllers that a node knows. Ids and addresses are what messages claim; voters come
# and go, and those of the log count always.
MAX_QUORUM_ADDRESSES = 10 * MAX_VOTERS
# Listeners of one voter that a request or a record of the log may have.
MAX_VOTER_LISTENERS = 16

# A metadata snapshot that a replica fetches: that of a cluster with some ten million partitions.
MAX_SNAPSHOT_BYTES = 2 * 1024 * 1024 * 1024

# Groups

# Passes of the uniform assignor over a group whose members subscribe to different topics. Two or
# three suffice, except for long chains of members that share topics in pairs; those may stay
# slightly uneven.
MAX_LEVELLING_PASSES = 32

# A regular expression of a subscription: its length, the size of its RE2 program, and that size
# times the characters of all topic names. A step takes 15 ns at worst, so the worst expression
# holds the event loop for less than a second, once. Usual ones take a hundredth of that.
MAX_REGEX_CHARACTERS = 1_000
MAX_REGEX_PROGRAM = 1_000
MAX_REGEX_STEPS = 50_000_000

# The reasons that one log line about a rebalance lists, and the length of a reason that a client
# gives.
MAX_REBALANCE_REASONS = 8
MAX_CLIENT_REASON_LENGTH = 200

# Expiry of offsets and deletion of groups are cut into steps. A step looks at so many groups and
# offsets for expiry (a few milliseconds), and removes at most so many records (about ten
# milliseconds) of so many bytes, a fraction of the batch that an internal topic takes by default.
EXPIRY_OFFSETS_PER_STEP = 5_000
MAX_REMOVALS_PER_STEP = 1_000
MAX_REMOVAL_BYTES = 256 * 1024

# Due work whose step was refused is tried again after this delay. The cause, usually a setting of
# the topic, lasts, and each attempt logs an error.
REFUSED_STEP_RETRY_MS = 30_000

# Steps of due work that a shard runs before it yields to the event loop, and the time after which
# it begins no other.
MAX_DUE_STEPS = 16
MAX_DUE_S = 0.005

# Epochs of a producer that a partition verifies at the same time. A producer uses one, and another
# instance with the same transactional id the next.
MAX_VERIFIED_EPOCHS = 8

# Transactions and partitions in one AddPartitionsToTxn request of a broker, which the coordinator
# decides on in some ten milliseconds.
MAX_VERIFIED_PARTITIONS = 2_000

# Transaction markers that a broker appends in one turn of the event loop: some milliseconds.
MARKERS_A_TURN = 100

# Producers of a partition that DescribeProducers returns in one turn of the event loop: a
# millisecond.
DESCRIBED_PRODUCERS_A_TURN = 500

# Bytes of its log that a shard reads at a time while it loads, and the records that it replays
# before it yields to the event loop: one or two milliseconds each.
SHARD_LOAD_BYTES = 64 * 1024
SHARD_LOAD_RECORDS = 128

# Groups and members whose deadlines a loaded shard starts in one step: half a millisecond.
LOADED_MEMBERS_PER_STEP = 250

# Keys, such as group ids, whose partition of an internal topic is cached: the hash takes
# microseconds, and heartbeats arrive by the thousand.
MAX_CACHED_SHARD_KEYS = 8_192

# The heartbeat interval of members while their consumer group's assignment changes, instead of the
# configured one (5 s by default). Each heartbeat takes a member one step towards its new
# assignment, which needs two or three.
SETTLING_HEARTBEAT_MS = 500

# Member ids that one group has assigned to clients that have not joined with them yet. Beyond, the
# oldest is dropped, and its client gets another. Kafka's only bound is the session timeout, which
# the client chooses.
MAX_PENDING_MEMBERS = 10_000

# Partitions in one WriteTxnMarkers request of this node. The broker that receives it appends a
# batch to each in one turn of its event loop: some tens of milliseconds.
MAX_MARKERS_PER_REQUEST = 1_000

# Transactions

# Transactional ids that a coordinator looks at in one step: some milliseconds. It expires them, or
# starts their timeouts after loading.
TRANSACTIONAL_IDS_PER_STEP = 1_000

# Transactions that a coordinator completes in one step: some milliseconds, with their batch.
COMPLETIONS_PER_STEP = 200

# Partitions whose markers a coordinator starts in one step after loading, and ended transactions:
# some milliseconds each. A transaction is not divided.
STARTED_PARTITIONS_PER_STEP = 10_000
STARTED_MARKERS_PER_STEP = 100

# Completion of transactions whose step was refused is tried again after this delay. Their producers
# wait for it, and the cause, too few replicas in sync, usually ends soon.
MARKER_COMPLETION_RETRY_MS = 500

# Logs of requests

# Names in a line of the audit log. A request may have 100,000.
LOGGED_NAMES = 20
# Of one name that a client chose, which may have 32 KB. A topic's has at most 249.
LOGGED_NAME_CHARACTERS = 250
# How often the audit log has a line for the commits of a client that is no member of the group, and
# how many such clients and groups are remembered.
AUDITED_COMMITS_S = 60.0
AUDITED_COMMITTERS = 1_000
# Of the content of a request, which may have megabytes.
LOGGED_REQUEST_CHARACTERS = 2_000

# Metrics

# A scrape runs on the event loop for this long, then other work has its turn.
SCRAPE_TURN_S = 0.002
# Lines that are joined, or names that are sorted, before a scrape checks the time: some 0.1 µs
# each.
SCRAPED_SAMPLES_PER_STEP = 2_000
# Partitions that a scrape looks at before it checks the time: 1 µs each, 10 µs with their series.
SCRAPED_PARTITIONS_PER_STEP = 50
# Committed offsets whose replicas are remembered from one scrape to the next, 40 bytes each, and
# for how long if there is no next one. Those of other groups are looked up by each scrape, which
# takes 0.3 µs each.
SCRAPE_KEPT_OFFSETS = 200_000
SCRAPE_KEPT_S = 300.0
# How long a scrape waits for a disk. What it has not read then is not on the page.
SCRAPE_READ_S = 1.0
# Committed offsets whose records are not in memory and are looked up per scrape, to tell their age.
# Each takes a read of the disk. What was found is kept; the next scrapes look for the others.
SCRAPED_COLD_RECORDS = 200
# How long a scrape waits for other brokers, for the end offsets of partitions that they lead, and
# how many one request asks for: to encode it, and to decode its response, takes about a turn.
SCRAPE_REMOTE_S = 2.0
SCRAPED_REMOTE_PARTITIONS = 250
# Former end offsets that are remembered of a partition that another broker leads, 24 bytes each.
# When there are more, some are forgotten: the age of a record that was appended thousands of
# scrapes ago is then known to a third of it or better.
REMEMBERED_END_OFFSETS = 48
# Records per scrape whose timestamps are read from other brokers. Each takes a fetch of a batch,
# which may have a megabyte. What was read is kept; the next scrapes ask for the others.
SCRAPED_REMOTE_RECORDS = 50
# A coordinator ends a transaction after transaction.max.timeout.ms at the latest. One that is open
# for this much longer is late: no coordinator knows it. Kafka's LATE_TRANSACTION_BUFFER_MS.
LATE_TRANSACTION_MS = 300_000
# Markers of transactions that a scrape skips to find the first record after a committed offset. If
# more follow each other, the next scrape goes on.
SCRAPED_MARKERS = 5
# Elements of an array in a response whose error codes are counted.
COUNTED_ERRORS = 1_000
# The head of an HTTP request, which Prometheus sends with some 300 bytes.
MAX_SCRAPE_REQUEST_BYTES = 8_192
# Connections to the metrics listener, and scrapes that run or wait at a time. Several Prometheus
# servers may scrape a node; each page is in memory until it is sent.
MAX_SCRAPE_CONNECTIONS = 32
MAX_SCRAPES = 4
# The head of a request must arrive, and the page must be taken, within these times. Prometheus
# itself gives up after 10 s by default.
SCRAPE_HEAD_S = 5.0
SCRAPE_SEND_S = 30.0

# Command line and Spark

# Lines that one place in the code writes to a node's log are counted for this long
# (penstock.log.rate.limit).
LOG_REPEATS_S = 10.0
# Of so many partitions a place in the code writes the first error in that time, beyond the limit.
# doctor reads as many events of a log.
LOGGED_PARTITIONS = 1_000

# Partitions whose sizes and end offsets `penstock top` asks for in a refresh, which takes about a
# second then, and groups that it asks for at a time.
MAX_TOP_PARTITIONS = 20_000
MAX_TOP_GROUP_REQUESTS = 16

# The file of a user's cluster profiles, and a profile's name. Hundreds of profiles fit.
MAX_PROFILES_BYTES = 64 * 1024
MAX_PROFILE_NAME = 64
# A password that `penstock users` reads, and a token of OAUTHBEARER: a wrong file is refused early.
MAX_PASSWORD_BYTES = 4096
MAX_TOKEN_BYTES = 64 * 1024
# How long the issuer of a token may take.
TOKEN_TIMEOUT_S = 10.0

# A line of `penstock produce`. No broker accepts a record of this size by default
# (message.max.bytes is 1 MB), and a file without line ends must not be read into memory as a whole.
MAX_PRODUCED_LINE_BYTES = 64 * 1024 * 1024

# Decompressed bytes and rows of one Arrow batch for Spark; the next batch takes the rest. A record
# batch is not divided by its bytes, which MAX_DECOMPRESSED_BYTES bounds. Together they stay below
# the 2 GB of an Arrow column.
MAX_COLUMNS_BYTES = 64 * 1024 * 1024
MAX_COLUMNS_ROWS = 1_000_000

# Rows that Spark's sink collects before it divides them among partitions. Spark passes about a
# megabyte at a time, which would make small record batches if there are many partitions.
SPARK_GATHERED_BYTES = 4 * 1024 * 1024

# Encoded rows of a task that travel in its commit message instead of a transaction of their own. A
# small micro-batch is then one Kafka transaction. The commit holds those of all tasks in memory.
SPARK_INLINE_BYTES = 256 * 1024
# Spark fails a query whose commit messages together exceed spark.driver.maxResultSize, 1 GiB by
# default. The first tasks may send 256 MiB together. The others may send so little that 100,000
# tasks stay below 700 MiB.
SPARK_INLINE_TASKS = 1024
SPARK_LATER_INLINE_BYTES = 4 * 1024

# Values with jsonFields that are parsed one by one if one of them is not as expected. Arrow's
# parser takes some 30 µs to fail, Python's 3 µs for each value.
SPARK_JSON_ROWS = 64

# Clients that a process of Spark keeps open, by connection options. Each has a thread and a
# connection to every broker. A session seldom connects with more than a few client.ids.
SPARK_SHARED_CLIENTS = 16

# Characters of an error message. In UTF-8 they fit into a string of the protocol.
MAX_ERROR_MESSAGE = 4_000

# Resources whose configs are described in one turn of the event loop. A broker takes about 2 ms.
DESCRIBED_RESOURCES_A_TURN = 10

# Access control

# Entries that a node indexes in one step of a metadata change: about a millisecond.
ACLS_INDEXED_A_TURN = 250
# Results of the authorizer that are cached, each of some 200 bytes. Names of groups may have 32,767
# characters; those that are longer than a topic's are not cached.
CACHED_AUTHORIZATIONS = 10_000
CACHED_NAME_CHARACTERS = 255
# Entries that one request may create or delete, as in Kafka's controller.
MAX_ACLS_PER_REQUEST = 10_000
# Characters of a resource name, a principal or a host in an entry. Kafka has no bound; the longest
# principals are names of certificates.
MAX_ACL_FIELD_CHARACTERS = 4_096
# Comparisons of filters with entries that the controller makes for one DeleteAcls: half a second.
# Filters with every field take one each.
MAX_ACL_COMPARISONS = 2_000_000
# Entries, and resources, that DescribeAcls looks at and encodes in one turn of the event loop: 3 to
# 10 microseconds each.
DESCRIBED_ACLS_A_TURN = 500

# Names that are checked, and errors that are made of them, in one turn of the event loop. A name
# that is not cached takes 4 to 28 microseconds.
AUTHORIZED_A_TURN = 250

# Client quotas

# Sensors of one quota, each of about a kilobyte when its client is active. A client chooses its
# client id, and may invent many. The least recently used one is dropped.
MAX_QUOTA_SENSORS = 10_000
# Sensors that are looked at in one turn of the event loop, to drop those of quiet clients.
EXPIRED_SENSORS_A_TURN = 200
# Entities and quotas that a request may alter: as many records as Kafka's controller writes for
# one, and some milliseconds.
MAX_QUOTAS_PER_REQUEST = 10_000
# Characters of a user or a client id that has a quota. Kafka has no bound; the longest users are
# names of certificates.
MAX_QUOTA_NAME_CHARACTERS = 4_096
# Entities that a node indexes in one step of a metadata change, and that DescribeClientQuotas looks
# at and encodes in one turn of the event loop: 10 microseconds each.
QUOTAS_INDEXED_A_TURN = 250
DESCRIBED_QUOTAS_A_TURN = 500

# SASL

# RFC 4616: each of three names has at least 255 octets. Cloud services use tokens of some kilobytes
# as passwords.
MAX_PLAIN_MESSAGE_BYTES = 64 * 1024
# A SCRAM message has a name, two nonces, a salt or a proof. Kafka's are below 500 bytes.
MAX_SCRAM_MESSAGE_BYTES = 8 * 1024
# Credentials that a request sets or removes: each takes some 20 µs of the controller.
MAX_SCRAM_CREDENTIALS_PER_REQUEST = 1_000
# Users that DescribeUserScramCredentials looks at in one turn of the event loop: each takes some
# microseconds.
DESCRIBED_SCRAM_USERS_A_TURN = 500
# Characters of a user name, and bytes of a salt. A message with them fits into
# MAX_SCRAM_MESSAGE_BYTES, whatever is escaped.
MAX_SCRAM_NAME_CHARACTERS = 1_000
MAX_SCRAM_SALT_BYTES = 1_024
# A bootstrap.checkpoint, which has a credential per --add-scram.
MAX_BOOTSTRAP_BYTES = 16 * 1024 * 1024
# A response to a client of ours during its authentication.
MAX_SASL_RESPONSE_BYTES = 64 * 1024
# A client's first message of OAUTHBEARER. Tokens with many claims have some kilobytes.
MAX_OAUTH_MESSAGE_BYTES = 64 * 1024
# A JSON Web Key Set, its keys, how long a server may take to send it, and how often it is asked for
# at most.
MAX_JWKS_BYTES = 1024 * 1024
MAX_JWKS_KEYS = 1_000
JWKS_TIMEOUT_S = 10.0
JWKS_MIN_INTERVAL_S = 10.0
# Iterations that a server may ask a client of ours for. Kafka's credentials have up to 16,384; a
# million takes a second of a core.
MAX_SCRAM_CLIENT_ITERATIONS = 1_000_000
# Characters of the reason in the log line of a failed authentication, which has a name that the
# client chose.
LOGGED_REASON_CHARACTERS = 200
# Characters of a sasl.jaas.config: some ten thousand users of PLAIN.
MAX_JAAS_CHARACTERS = 1024 * 1024

# Delegation tokens

# Tokens of a cluster, and of one owner. Every node holds all of them, and a creation and a search
# for expired ones look at each: 20,000 take about 5 ms. A scheduler that creates a token per job
# has some thousand in the week that a token lives.
MAX_DELEGATION_TOKENS = 20_000
MAX_DELEGATION_TOKENS_PER_OWNER = 5_000
# Principals that may renew a token, and characters of a principal's name. A record with them has
# less than half a megabyte.
MAX_TOKEN_RENEWERS = 100
MAX_TOKEN_PRINCIPAL_CHARACTERS = 4_096
# Owners that DescribeDelegationToken may name.
MAX_DESCRIBED_TOKEN_OWNERS = 10_000
# HMACs that a controller derives in one turn of the event loop, tokens that DescribeDelegationToken
# looks at in one, and expired ones that are removed in one: some milliseconds each.
TOKENS_INDEXED_A_TURN = 1_000
DESCRIBED_TOKENS_A_TURN = 250
EXPIRED_TOKENS_A_TURN = 500
# SCRAM credentials of tokens that a node remembers, of half a kilobyte each: those of all tokens,
# for both mechanisms. One takes some milliseconds of the event loop to derive, and clients ask for
# it by the id of a token, without its secret.
CACHED_TOKEN_CREDENTIALS = 2 * MAX_DELEGATION_TOKENS

# TLS

# Bytes of a key store or trust store. That of an operating system has some 200 kB.
MAX_KEYSTORE_BYTES = 16 * 1024 * 1024
# A handshake takes two round trips and some milliseconds of work.
HANDSHAKE_TIMEOUT_S = 10.0
# The first message of a client. Its largest part is a key of 1 KB, or a session ticket.
MAX_CLIENT_HELLO_BYTES = 16 * 1024
# Handshakes at once, of all listeners and of one address. One takes about 50 kB, and a millisecond
# of the event loop. Others wait in a line, unread.
MAX_HANDSHAKES = 512
MAX_HANDSHAKES_PER_ADDRESS = 128
# Handshakes at once of clients that are asked for a key of another group. Usual clients are not.
MAX_HANDSHAKES_AWAITING_KEYS = 16
# A peer that is silent for so long in its handshake gives way to one that waits in the line. The
# longest round trips on earth take a third of it.
HANDSHAKE_PATIENCE_S = 1.0
HANDSHAKE_CHECK_S = 0.1
# Handshakes that begin in one turn of the event loop, and connections that are accepted in one.
HANDSHAKES_A_TURN = 4
ACCEPTED_A_TURN = 64
# How long a listener does not accept after the process ran out of descriptors, as asyncio's.
ACCEPT_RETRY_S = 1.0
# Pairs of address and reason whose failed handshakes are remembered, so that each is logged once in
# HANDSHAKE_LOGGED_S; and lines in one second, whatever the addresses.
MAX_LOGGED_HANDSHAKES = 1_000
HANDSHAKE_LOGGED_S = 60.0
HANDSHAKE_LINES_PER_S = 5
# Bytes of a response that are read from their file and encrypted in one turn of the event loop: 0.2
# ms of AES.
TLS_BYTES_A_TURN = 256 * 1024
# Records without data that a peer may send at once, and records with data after which it may send
# another one. One takes up to 40 µs, and TLS 1.3 has them for new keys, after 100 GB, and for
# session tickets.
MAX_EMPTY_TLS_RECORDS = 32
TLS_RECORDS_PER_EMPTY_ONE = 1_024
# Records of a connection that are decrypted in one turn of the event loop, each of up to 16 KB: one
# of a byte takes 3 µs.
TLS_RECORDS_A_TURN = 512
# Records that a peer may have sent before it learns that the connection is closed.
MAX_TLS_RECORDS_AFTER_CLOSE = 2_048
# Encrypted bytes that a transport reads of a connection that the server does not read.
TLS_READ_AHEAD_BYTES = 16 * 1024
# The buffer of an encrypted connection in which asyncio and uvloop receive. Its pages are in memory
# as far as a read has filled it. A connection with a part of a request counts as much of it as that
# part has; what an earlier read has filled does not count, and is bounded by max.connections.
TLS_BUFFER_BYTES = 256 * 1024
# How often the files of keys and certificates are looked at.
TLS_RELOAD_S = 5.0
# A certificate that expires within this time is reported in the log.
CERTIFICATE_WARNING_S = 14 * 24 * 3600
