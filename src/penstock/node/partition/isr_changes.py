"""Changes of the in-sync replicas, asked of the controller: those of all partitions in one request,
one request at a time.

A proposal stays until the controller has decided on it, or metadata has overtaken it; then its
partition no longer proposes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.node.partition.partition import Partition
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.replica.leader import IsrProposal

T = TypeVar("T")
Topic = AlterPartitionRequest.Topic
Member = Topic.Partition.NewIsrWithEpoch
Answer = AlterPartitionResponse.Topic.Partition

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
# Before what was not decided, or was refused, is looked at again.
AGAIN_S = 0.1

# The controller says that the proposal did not and will not happen, and that what the leader knows
# of the partition is right.
_REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The leader is behind the controller: metadata under way will tell it how things are, and until
# then it counts both ways.
_OVERTAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
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
    ) -> None:
        self._node_id = node_id
        self._call = call
        self._broker_epoch = broker_epoch
        self._spawn = spawn
        self._waiting: dict[tuple[UUID, int], tuple[Partition, IsrProposal]] = {}
        self._running = False

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._waiting[partition.topic_id, partition.topic_partition.partition] = (
            partition,
            proposal,
        )
        if not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                if not await self._ask(asked):
                    # What was proposed meanwhile is newer than what is put back.
                    self._waiting = {
                        key: one for key, one in asked.items() if one[0].is_proposing(one[1])
                    } | self._waiting
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._running = False

    async def _ask(self, asked: dict[tuple[UUID, int], tuple[Partition, IsrProposal]]) -> bool:
        """Whether all of it is decided."""
        try:
            response = await self._call(
                self._request(asked), AlterPartitionResponse, timeout_s=TIMEOUT_S
            )
        except KafkaError as error:
            logger.warning(
                "in-sync replicas of %d partitions could not be changed: %s",
                len(asked),
                error.message,
            )
            return False
        if response.error_code:
            logger.warning(
                "in-sync replicas of %d partitions were not changed: error %d",
                len(asked),
                response.error_code,
            )
            return False
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        decided = [key in answers and _deliver(*one, answers[key]) for key, one in asked.items()]
        return all(decided)

    def _request(
        self, asked: dict[tuple[UUID, int], tuple[Partition, IsrProposal]]
    ) -> AlterPartitionRequest:
        epoch = self._broker_epoch()
        topics: dict[UUID, list[Topic.Partition]] = {}
        for (topic_id, index), (_partition, proposal) in asked.items():
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
        named = tuple(
            Topic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        )
        return AlterPartitionRequest(broker_id=self._node_id, broker_epoch=epoch, topics=named)


def _deliver(partition: Partition, proposal: IsrProposal, answer: Answer) -> bool:
    """Whether this is decided: if not, it is to be asked again."""
    if answer.error_code == ErrorCode.NONE:
        if answer.leader_epoch == proposal.leader_epoch:
            partition.isr_decided(proposal, answer.isr, answer.partition_epoch)
            logger.info("%s: in sync are %s", partition.topic_partition, list(answer.isr))
        return True
    logger.info(
        "%s: the controller refuses to change the in-sync replicas: error %d",
        partition.topic_partition,
        answer.error_code,
    )
    if answer.error_code in _REFUSED:
        partition.isr_refused(proposal)
        asyncio.get_running_loop().call_later(AGAIN_S, partition.review)
        return True
    return answer.error_code in _OVERTAKEN
