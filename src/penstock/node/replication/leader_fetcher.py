"""All partitions that this node follows from one leader: one fetch in flight, and the next one
leaves at once after the append.

Theory of operation. A fetch session at the leader knows every partition followed and where it is; a
request names only those whose place changed, an answer only those that have news. What an answer
brings is appended in the same run as the next request is written: no task is woken in between. A
partition that cannot go on (an error, a cut of its log) is forgotten by the session and named again
when it can. A second request may follow the first before its answer: the leader then answers the
first at once, so that a new partition need not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

from penstock.client.faults import ConnectionFailed
from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import Buffer
from penstock.limits import FOLLOWER_APPEND_BYTES
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetch_link import FetchLink, open_link
from penstock.node.replication.fetched import first_offset, whole_batches
from penstock.node.replication.follower_session import Followed, FollowerSession, Key, key_of
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.replica.follower import DivergingEpoch

logger = logging.getLogger(__name__)

Answer = FetchResponse.Response.Partition

CONNECT_TIMEOUT_S = 2.0
# After a failure: first this, then twice as much each time, up to replica.fetch.backoff.ms. A
# leader that was just elected may hear of it some milliseconds after its followers.
FIRST_BACKOFF_S = 0.01


class LeaderFetcher:
    """`run` it as a task of the node's own, which ends when nothing is left to follow."""

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
        self._silence_s = config[cluster_settings.REPLICA_SOCKET_TIMEOUT_MS] / 1000
        self._link: FetchLink | None = None
        self._version = 0
        self._failures = 0
        # What is left of the answer under way.
        self._answers: deque[tuple[UUID, Answer]] = deque()
        self._unsynced: dict[Key, Followed] = {}
        self._busy = False
        self._ended = asyncio.Event()

    @property
    def is_cut_off(self) -> bool:
        """Whether there is no connection to the leader: it may be dead."""
        return self._link is None or self._link.lost.done()

    # Who is followed

    def add(self, partition: Partition) -> None:
        known = self._followed.get(key_of(partition))
        if (
            known is not None
            and known.partition is partition
            and known.epoch == partition.leader_epoch
        ):
            return
        followed = Followed(partition)
        self._ended.clear()
        self._followed[followed.key] = followed
        if partition.is_ready_to_follow:
            self._resume(followed)
        else:
            self._session.forget(followed.key)
            self._env.spawn(self._resume_after(followed, partition.be_ready_to_follow()))

    def remove(self, partition: Partition) -> None:
        key = key_of(partition)
        if self._followed.pop(key, None) is not None:
            self._session.forget(key)
            self._fetch_if_useful()
        if not self._followed:
            self._ended.set()
            if self._link is not None:
                self._link.close()

    def _resume(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            self._session.change(followed)
            self._fetch_if_useful()

    def _pause(self, followed: Followed, why: str) -> None:
        """For a while, since it failed."""
        if self._followed.get(followed.key) is not followed:
            return
        self._session.forget(followed.key)
        delay_s = min(FIRST_BACKOFF_S * 2**followed.failures, self._max_backoff_s)
        followed.failures = min(followed.failures + 1, 16)
        level = logging.WARNING if followed.failures > 8 else logging.DEBUG
        logger.log(
            level,
            "%s is not fetched from broker %d: %s",
            followed.partition.topic_partition,
            self._leader_id,
            why,
        )
        asyncio.get_running_loop().call_later(delay_s, self._resume, followed)

    # The connection

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
                        "broker %d cannot be fetched from: %s",
                        self._leader_id,
                        error.message,
                    )
                self._disconnected()
                await self._sleep(min(FIRST_BACKOFF_S * 2**self._failures, self._max_backoff_s))
                self._failures = min(self._failures + 1, 16)
        finally:
            self._disconnected()

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
        link, self._version = await open_link(
            self._env.world,
            *address,
            f"broker-{self._env.node_id}-fetcher",
            CONNECT_TIMEOUT_S,
            FetchRequest,
        )
        self._link = link
        self._session.begin(self._broker_epoch())
        if self._followed:
            self._fetch_if_useful()
        else:
            link.close()

    async def _watch(self) -> None:
        """Until the connection ends, or the leader is silent for too long."""
        link = self._link
        assert link is not None
        while not link.lost.done():
            await asyncio.wait([link.lost], timeout=self._silence_s / 2)
            if (
                link.in_flight
                and asyncio.get_running_loop().time() - link.last_answer > self._silence_s
            ):
                link.close(f"{link.address} did not answer a fetch within {self._silence_s:g} s")
        raise link.lost.result()

    def _disconnected(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._answers.clear()
        self._busy = False

    # Asking

    def _fetch_if_useful(self) -> None:
        link = self._link
        if link is None or self._busy or link.lost.done():
            return
        if self._broker_epoch() != self._session.broker_epoch:
            link.close("this broker was registered anew")
        elif (link.in_flight == 0 and (self._session.id or self._session.has_news)) or (
            link.in_flight == 1 and self._session.id and self._session.has_news
        ):
            link.ask(self._session.request(), self._version, FetchResponse, self._answered)

    # Taking

    def _answered(self, response: FetchResponse) -> None:
        if self._link is None:
            return
        if response.error_code:
            # The session is lost: a new connection begins another.
            self._link.close(f"the fetch was refused: {_name(response.error_code)}")
            return
        self._failures = 0
        self._session.answered(response.session_id)
        for topic in response.responses:
            self._answers.extend([(topic.topic_id, answer) for answer in topic.partitions])
        self._busy = True
        self._take(self._link)

    def _take(self, link: FetchLink) -> None:
        """Appends what came; a large answer in pieces, so that others get their turn."""
        if self._link is not link:
            return
        taken = 0
        while self._answers:
            if taken > FOLLOWER_APPEND_BYTES:
                link.hold()
                asyncio.get_running_loop().call_soon(self._take, link)
                return
            topic_id, answer = self._answers.popleft()
            followed = self._followed.get((topic_id, answer.partition_index))
            if (
                followed is not None
                and self._session.expects(followed)
                and followed.epoch == followed.partition.leader_epoch
            ):
                taken += self._take_one(followed, answer)
        if self._unsynced:
            link.hold()
            self._env.spawn(self._sync(link))
        else:
            self._taken(link)

    def _taken(self, link: FetchLink) -> None:
        if self._link is not link:
            return
        self._busy = False
        self._fetch_if_useful()
        link.go_on()

    def _take_one(self, followed: Followed, answer: Answer) -> int:
        if answer.error_code:
            self._failed(followed, answer)
            return 0
        if answer.diverging_epoch.epoch >= 0:
            diverging = DivergingEpoch(
                answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset
            )
            self._cut(followed, followed.partition.truncate(followed.epoch, diverging))
            return 0
        records = whole_batches(cast(memoryview, answer.records)) if answer.records else b""
        if records and first_offset(records) < followed.partition.log_end_offset:
            if not self._was_outrun(followed, records):
                return 0
            records = b""  # but how far the leader is may be news
        try:
            must_sync = followed.partition.append_fetched(
                records, answer.high_watermark, answer.log_start_offset
            )
        except KafkaError as error:
            self._pause(followed, error.message)
            return 0
        followed.failures = 0
        if answer.records:
            self._session.change(followed)
            if must_sync:
                self._unsynced[followed.key] = followed
        return len(records)

    def _was_outrun(self, followed: Followed, records: Buffer) -> bool:
        """Whether records that are here already come by an answer that was under way when we came
        so far. Otherwise the leader's log begins within a batch, or something is wrong with it."""
        partition = followed.partition
        base_offset = first_offset(records)
        if partition.log_start_offset == partition.log_end_offset:
            self._cut(followed, partition.restart(followed.epoch, base_offset, bytes(records)))
        elif self._link is not None and self._link.in_flight:
            return True
        else:
            self._pause(
                followed,
                (
                    f"the leader sent offset {base_offset}, and was asked for "
                    f"{partition.log_end_offset}"
                ),
            )
        return False

    def _failed(self, followed: Followed, answer: Answer) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset >= 0:
            self._cut(followed, followed.partition.restart(followed.epoch, answer.log_start_offset))
        else:
            self._pause(
                followed, f"the leader of epoch {followed.epoch} answers {_name(answer.error_code)}"
            )

    def _cut(self, followed: Followed, cut: Coroutine[Any, Any, None]) -> None:
        self._session.forget(followed.key)
        self._env.spawn(self._resume_after(followed, cut))

    async def _resume_after(self, followed: Followed, cut: Coroutine[Any, Any, None]) -> None:
        try:
            await cut
        except KafkaError as error:
            self._pause(followed, error.message)
            return
        self._resume(followed)

    async def _sync(self, link: FetchLink) -> None:
        """flush.messages: what is not on the disk is not acknowledged, and the next fetch would."""
        unsynced, self._unsynced = self._unsynced, {}
        for followed in unsynced.values():
            try:
                await followed.partition.sync()
            except KafkaError as error:
                self._pause(followed, error.message)
        self._taken(link)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
