"""Fetches all partitions that this broker follows from one leader.

Theory of operation. One fetch is in flight; the next one is sent in the same callback in which its
records are appended, without waking a task. A fetch session at the leader knows every partition and
its offset: a request lists only the partitions whose offset changed, a response only those with
news. A partition that cannot continue (an error, a truncation) is removed from the session and
added again later. A second request may be sent before the response to the first; the leader then
completes the first immediately, so that a new partition need not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

from penstock.client.errors import ConnectionFailed
from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.limits import (
    BATCH_HEADER_BYTES,
    CATCH_UP_UNSYNCED_BYTES,
    FETCH_PARTITIONS_A_TURN,
    FOLLOWER_APPEND_BYTES,
)
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetch_connection import FetchConnection, open_connection
from penstock.node.replication.follower_session import (
    FollowedPartition,
    FollowerSession,
    Key,
    key_of,
)
from penstock.node.replication.throttled_fetches import ThrottledFetches
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.batch import LENGTH_OVERHEAD
from penstock.replica.follower import DivergingEpoch

logger = logging.getLogger(__name__)

PartitionData = FetchResponse.Response.Partition

CONNECT_TIMEOUT_S = 2.0
# The first back-off after a failure; it doubles each time up to replica.fetch.backoff.ms. A leader
# that was just elected may learn of it some milliseconds after its followers.
FIRST_BACKOFF_S = 0.01
# A fetch that takes so much longer than replica.fetch.wait.max.ms is logged, at most so often.
SLOW_FETCH_S = 1.0
SLOW_FETCH_LOG_S = 10.0

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class ReplicaFetcher:
    """`run` is a task that the node owns. It ends when no partition is left."""

    def __init__(
        self,
        env: PartitionEnv,
        config: NodeConfig,
        leader_id: int,
        *,
        address_of: Callable[[int], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._leader_id = leader_id
        self._address_of = address_of
        self._broker_epoch = broker_epoch
        self._session = FollowerSession(
            env.node_id,
            config[cluster_settings.REPLICA_FETCH_WAIT_MAX_MS],
            config[cluster_settings.REPLICA_FETCH_MIN_BYTES],
            config[cluster_settings.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[cluster_settings.REPLICA_FETCH_MAX_BYTES],
        )
        self._followed = self._session.followed
        self._max_backoff_s = config[cluster_settings.REPLICA_FETCH_BACKOFF_MS] / 1000
        self._socket_timeout_s = config[cluster_settings.REPLICA_SOCKET_TIMEOUT_MS] / 1000
        self._slow_s = SLOW_FETCH_S + config[cluster_settings.REPLICA_FETCH_WAIT_MAX_MS] / 1000
        self._slow_logged_at = -SLOW_FETCH_LOG_S
        self._connection: FetchConnection | None = None
        self._version = 0
        self._failures = 0
        # The partitions of the current response that are not appended yet.
        self._unprocessed: deque[tuple[UUID, PartitionData]] = deque()
        self._unsynced: dict[Key, FollowedPartition] = {}
        self._processing = False
        self._ended = asyncio.Event()
        self._throttled = ThrottledFetches(
            env, config[cluster_settings.REPLICA_FETCH_MAX_BYTES], self._fetch
        )

    @property
    def is_cut_off(self) -> bool:
        """True if there is no connection to the leader: the broker may be down."""
        return self._connection is None or self._connection.lost.done()

    # Partitions

    def add(self, partition: Partition) -> None:
        known = self._followed.get(key_of(partition))
        if (
            known is not None
            and known.partition is partition
            and known.epoch == partition.leader_epoch
        ):
            return
        followed = FollowedPartition(partition)
        self._throttled.discard(followed.key)
        self._ended.clear()
        self._followed[followed.key] = followed
        if partition.is_ready_to_follow:
            self._resume(followed)
        else:
            self._forget(followed.key)
            self._env.spawn(self._resume_after(followed, partition.be_ready_to_follow()))

    def remove(self, partition: Partition) -> None:
        key = key_of(partition)
        if self._followed.pop(key, None) is not None:
            self._forget(key)
            self._fetch_if_useful()
        if not self._followed:
            self._ended.set()
            if self._connection is not None:
                self._connection.close()

    def _resume(self, followed: FollowedPartition) -> None:
        if self._followed.get(followed.key) is not followed:
            return
        if self._throttled.applies(followed):
            self._session.forget(followed.key)
            self._throttled.wait(followed)
        else:
            self._fetch(followed)

    def _fetch(self, followed: FollowedPartition) -> None:
        """Fetch a partition from now on, at its current end."""
        if self._followed.get(followed.key) is followed:
            self._session.change(followed)
            self._fetch_if_useful()

    def _forget(self, key: Key) -> None:
        """Stop to fetch a partition."""
        self._session.forget(key)
        self._throttled.discard(key)

    def _back_off(self, followed: FollowedPartition, reason: str) -> None:
        if self._followed.get(followed.key) is not followed:
            return
        self._forget(followed.key)
        delay_s = min(FIRST_BACKOFF_S * 2**followed.failures, self._max_backoff_s)
        followed.failures = min(followed.failures + 1, 16)
        level = logging.WARNING if followed.failures > 8 else logging.DEBUG
        logger.log(
            level,
            "cannot fetch %s from broker %d, retrying: %s",
            followed.partition.topic_partition,
            self._leader_id,
            reason,
        )
        asyncio.get_running_loop().call_later(delay_s, self._resume, followed)

    # Connection

    async def run(self) -> None:
        try:
            while self._followed:
                try:
                    await self._connect()
                    await self._watch()
                except KafkaError as error:
                    level = logging.INFO if self._failures == 0 else logging.DEBUG
                    logger.log(
                        level,
                        "cannot fetch from broker %d, retrying: %s",
                        self._leader_id,
                        error.message,
                    )
                self._disconnect()
                await self._sleep(min(FIRST_BACKOFF_S * 2**self._failures, self._max_backoff_s))
                self._failures = min(self._failures + 1, 16)
        finally:
            self._disconnect()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return

    async def _connect(self) -> None:
        address = self._address_of(self._leader_id)
        if address is None or self._broker_epoch() < 0:
            raise ConnectionFailed("its address is not known, or this broker is not registered")
        connection, self._version = await open_connection(
            self._env.world,
            *address,
            f"broker-{self._env.node_id}-fetcher",
            CONNECT_TIMEOUT_S,
            FetchRequest,
        )
        self._connection = connection
        self._session.begin(self._broker_epoch())
        if self._followed:
            self._fetch_if_useful()
        else:
            connection.close()

    async def _watch(self) -> None:
        """Return when the connection ends. Close it if the leader does not respond in time."""
        connection = self._connection
        assert connection is not None
        timeout_s = self._socket_timeout_s
        while not connection.lost.done():
            await asyncio.wait([connection.lost], timeout=timeout_s / 2)
            silence_s = asyncio.get_running_loop().time() - connection.last_response
            if connection.in_flight and silence_s > timeout_s:
                connection.close(
                    f"{connection.address} did not respond to a fetch within {timeout_s:g} s"
                )
        raise connection.lost.result()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._unprocessed.clear()
        self._processing = False

    # Requests

    def _fetch_if_useful(self) -> None:
        connection, session = self._connection, self._session
        if connection is None or self._processing:
            return
        if self._broker_epoch() != session.broker_epoch:
            connection.close("this broker was registered again")
            return
        # A second request makes the leader answer the first one now. While there are more
        # partitions to list than one request may have, two are in flight.
        while not connection.lost.done() and (
            (connection.in_flight == 0 and (session.id or session.has_changes))
            or (connection.in_flight == 1 and session.id and session.has_changes)
        ):
            connection.send(session.request(), self._version, FetchResponse, self._received)

    # Responses

    def _received(self, response: FetchResponse) -> None:
        if self._connection is None:
            return
        if response.error_code:
            # The session is lost; a new connection begins another.
            self._connection.close(f"the leader refused the fetch: {_name(response.error_code)}")
            return
        self._failures = 0
        if self._connection.last_wait_s > self._slow_s:
            self._log_slow(self._connection)
        self._session.received(response.session_id)
        for topic in response.responses:
            self._unprocessed.extend([(topic.topic_id, data) for data in topic.partitions])
        self._processing = True
        self._process(self._connection)

    def _log_slow(self, connection: FetchConnection) -> None:
        if connection.last_response - self._slow_logged_at < SLOW_FETCH_LOG_S:
            return
        self._slow_logged_at = connection.last_response
        logger.warning(
            "a fetch from broker %d took %d ms: that broker or this one is overloaded or was "
            "stopped, or the network to %s is slow or loses packets",
            self._leader_id,
            connection.last_wait_s * 1000,
            connection.address,
        )

    def _process(self, connection: FetchConnection) -> None:
        """Append the records of a response, and send the next fetch. Consumers that wait for the
        records are answered before the callback returns."""
        with self._env.actions:
            self._append(connection)

    def _append(self, connection: FetchConnection) -> None:
        """Append the records of a response; of a large one in several callbacks, so that other
        connections are served in between."""
        if self._connection is not connection:
            return
        appended = processed = 0
        while self._unprocessed:
            if appended > FOLLOWER_APPEND_BYTES or processed == FETCH_PARTITIONS_A_TURN:
                connection.pause()
                asyncio.get_running_loop().call_soon(self._process, connection)
                return
            processed += 1
            topic_id, data = self._unprocessed.popleft()
            followed = self._followed.get((topic_id, data.partition_index))
            if (
                followed is not None
                and self._session.expects(followed)
                and followed.epoch == followed.partition.leader_epoch
            ):
                appended += self._process_partition(followed, data)
        if self._unsynced:
            connection.pause()
            self._env.spawn(self._sync(connection))
        else:
            self._processed(connection)

    def _processed(self, connection: FetchConnection) -> None:
        if self._connection is not connection:
            return
        self._processing = False
        self._fetch_if_useful()
        connection.resume()

    def _process_partition(self, followed: FollowedPartition, data: PartitionData) -> int:
        """Append what a response has for one partition. Return the number of bytes appended."""
        if data.error_code:
            self._failed(followed, data)
            return 0
        if data.diverging_epoch.epoch >= 0:
            diverging = DivergingEpoch(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._truncate(followed, followed.partition.truncate(followed.epoch, diverging))
            return 0
        records = whole_batches(cast(memoryview, data.records)) if data.records else b""
        if records and _first_offset(records) < followed.partition.log_end_offset:
            if not self._is_repeated(followed, records):
                return 0
            records = b""  # the leader's high watermark may still be news
        try:
            must_sync = followed.partition.append_fetched(
                records, data.high_watermark, data.log_start_offset
            )
        except KafkaError as error:
            self._back_off(followed, error.message)
            return 0
        followed.failures = 0
        followed.unsynced_bytes += len(records)
        if self._throttled.must_wait(followed, len(records), data.high_watermark):
            self._session.forget(followed.key)
            self._throttled.wait(followed)
        elif (
            followed.unsynced_bytes > CATCH_UP_UNSYNCED_BYTES
            and followed.partition.log_end_offset < data.high_watermark
        ):
            followed.unsynced_bytes = 0
            self._forget(followed.key)
            self._env.spawn(self._resume_after(followed, followed.partition.sync()))
            return len(records)
        elif data.records or followed.partition.log_start_offset != followed.sent_log_start:
            # The leader may have a DeleteRecords request that waits for the log start.
            self._session.change(followed)
        else:
            return len(records)
        if must_sync:
            self._unsynced[followed.key] = followed
        return len(records)

    def _is_repeated(self, followed: FollowedPartition, records: Buffer) -> bool:
        """Return True if a response repeats records because it was in flight when the log reached
        its current end. Otherwise the leader's log starts within a batch, or is wrong."""
        partition = followed.partition
        base_offset = _first_offset(records)
        if partition.log_start_offset == partition.log_end_offset:
            self._truncate(followed, partition.restart(followed.epoch, base_offset, bytes(records)))
        elif self._connection is not None and self._connection.in_flight:
            return True
        else:
            self._back_off(
                followed,
                f"the leader sent offset {base_offset} for a fetch at {partition.log_end_offset}",
            )
        return False

    def _failed(self, followed: FollowedPartition, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            restart = followed.partition.restart(followed.epoch, data.log_start_offset)
            self._truncate(followed, restart)
        else:
            self._back_off(
                followed, f"the leader of epoch {followed.epoch} returned {_name(data.error_code)}"
            )

    def _truncate(self, followed: FollowedPartition, truncation: Coroutine[Any, Any, None]) -> None:
        self._forget(followed.key)
        self._env.spawn(self._resume_after(followed, truncation))

    async def _resume_after(
        self, followed: FollowedPartition, work: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await work
        except KafkaError as error:
            self._back_off(followed, error.message)
            return
        self._resume(followed)

    async def _sync(self, connection: FetchConnection) -> None:
        """flush.messages: sync before the next fetch, which acknowledges the records."""
        unsynced, self._unsynced = self._unsynced, {}
        for followed in unsynced.values():
            try:
                await followed.partition.sync()
            except KafkaError as error:
                self._back_off(followed, error.message)
        self._processed(connection)


def _first_offset(records: Buffer) -> int:
    return cast(int, _BASE_OFFSET.unpack_from(records)[0])


def whole_batches(records: memoryview) -> Buffer:
    """Return records without a last batch that is cut. A length that no batch can have is left to
    the log's checks."""
    position, end = 0, len(records)
    while position + LENGTH_OVERHEAD <= end:
        size = LENGTH_OVERHEAD + _LENGTH.unpack_from(records, position + LENGTH_OVERHEAD - 4)[0]
        if size < BATCH_HEADER_BYTES:
            return records
        if position + size > end:
            break
        position += size
    return records if position == end else records[:position]


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
