"""AlterPartition requests: sends the ISR changes of all partitions to the controller, one request
of bounded size at a time. If a broker fails, the ISRs of 100,000 partitions may change.

A proposal is sent again until the controller has decided on it or newer metadata has replaced it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_ALTER_PARTITION_OBJECTS
from penstock.node.partition.isr_log import IsrLog
from penstock.node.partition.leader import LeaderRole
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.replica.leader import IsrProposal

T = TypeVar("T")
Topic = AlterPartitionRequest.Topic
Member = Topic.Partition.NewIsrWithEpoch
Result = AlterPartitionResponse.Topic.Partition
# With the in-sync replicas before the change: when the controller has decided, the metadata log may
# have brought the new ones already.
Change = tuple[LeaderRole, IsrProposal, tuple[int, ...]]
Proposals = dict[tuple[UUID, int], Change]

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
# The delay before an undecided proposal is sent again, or a refused one is reconsidered.
RETRY_S = 0.1

# The controller did not and will not apply the proposal; the leader's metadata is up to date.
_REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The leader's metadata is behind the controller's. Until it catches up, the maximal ISR counts.
_OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)


class Call(Protocol):
    """`ControllerChannel.call`."""

    async def __call__(self, request: object, response: type[T], *, timeout_s: float) -> T: ...


class IsrChanges:
    def __init__(
        self,
        node_id: int,
        call: Call,
        broker_epoch: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        log: IsrLog,
    ) -> None:
        self._node_id = node_id
        self._call = call
        self._broker_epoch = broker_epoch
        self._spawn = spawn
        self._log = log
        self._unsent: Proposals = {}
        self._running = False

    def propose(self, role: LeaderRole, proposal: IsrProposal) -> None:
        partition = role.partition
        key = partition.topic_id, partition.topic_partition.partition
        self._unsent[key] = role, proposal, role.leader.isr
        if not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._unsent:
                sent = self._take()
                if not await self._send(sent):
                    for key, change in sent.items():
                        role, proposal, _before = change
                        if role.is_proposing(proposal):
                            # Behind the others, so that it does not delay them for ever. A proposal
                            # that was made during the request is newer.
                            self._unsent.setdefault(key, change)
                    self._log.write(is_complete=not self._unsent)
                    await asyncio.sleep(RETRY_S)
                else:
                    self._log.write(is_complete=not self._unsent)
        finally:
            self._running = False

    def _take(self) -> Proposals:
        """Remove and return the proposals of the next request, those that wait the longest."""
        taken: Proposals = {}
        objects = 0
        for key, change in self._unsent.items():
            objects += 1 + len(change[1].isr)
            if taken and objects > MAX_ALTER_PARTITION_OBJECTS:
                break
            taken[key] = change
        for key in taken:
            del self._unsent[key]
        return taken

    async def _send(self, proposals: Proposals) -> bool:
        """Send proposals. Return True if the controller decided on all of them."""
        try:
            response = await self._call(
                self._request(proposals), AlterPartitionResponse, timeout_s=TIMEOUT_S
            )
        except KafkaError as error:
            logger.warning(
                "cannot change the in-sync replicas of %d partitions, retrying: %s",
                len(proposals),
                error.message,
            )
            return False
        if response.error_code:
            logger.warning(
                "the controller did not change the in-sync replicas of %d partitions, retrying: "
                "error %d",
                len(proposals),
                response.error_code,
            )
            return False
        results = {
            (topic.topic_id, result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }
        decided = [
            key in results and self._deliver(change, results[key])
            for key, change in proposals.items()
        ]
        return all(decided)

    def _request(self, proposals: Proposals) -> AlterPartitionRequest:
        epoch = self._broker_epoch()
        topics: dict[UUID, list[Topic.Partition]] = {}
        for (topic_id, index), (_role, proposal, _before) in proposals.items():
            members = tuple(
                Member(
                    broker_id=broker,
                    broker_epoch=epoch if broker == self._node_id else member_epoch,
                )
                for broker, member_epoch in proposal.isr
            )
            topics.setdefault(topic_id, []).append(
                Topic.Partition(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=epoch,
            topics=tuple(
                Topic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )

    def _deliver(self, change: Change, result: Result) -> bool:
        """Give a leader the controller's decision. Return False if the proposal must be sent
        again."""
        role, proposal, before = change
        partition = role.partition
        if result.error_code == ErrorCode.NONE:
            if result.leader_epoch == proposal.leader_epoch:
                role.isr_decided(proposal, result.isr, result.partition_epoch)
                self._log.changed(role, before, result.isr)
            return True
        if result.error_code == ErrorCode.NEW_LEADER_ELECTED:
            logger.info(
                "%s: the in-sync replicas complete a reassignment, and another broker leads",
                partition.topic_partition,
            )
            return True
        logger.info(
            "%s: the controller refused to change the in-sync replicas: error %d",
            partition.topic_partition,
            result.error_code,
        )
        if result.error_code in _REFUSED:
            role.isr_refused(proposal)
            asyncio.get_running_loop().call_later(RETRY_S, partition.review)
            return True
        return result.error_code in _OUTDATED
