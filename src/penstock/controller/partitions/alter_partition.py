"""AlterPartition: a leader proposes an ISR. PURE.

The leader acts on the proposal before it is decided. So it must apply to exactly the state that the
leader knew: leader epoch, partition epoch and the broker epochs of all members are checked (rule
12).
"""

from __future__ import annotations

from uuid import UUID

from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import (
    RECOVERED,
    RECOVERING,
    AcceptableLeaders,
    Election,
    PartitionChanges,
    PartitionTarget,
    build_partition_change,
)
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.topics_delta import NO_LEADER_CHANGE, apply_partition_change
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

Proposal = AlterPartitionRequest.Topic.Partition
PartitionResponse = AlterPartitionResponse.Topic.Partition
# Broker ids and epochs.
Members = list[tuple[int, int]]

# Version 2 has no broker epochs: they are not checked.
ANY_EPOCH = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, context: ControllerContext
) -> ControllerResult[AlterPartitionResponse]:
    """Each partition succeeds or fails independently."""
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControllerResult((), AlterPartitionResponse(error_code=error.code))
    request_state = _AlterPartition(image, request.broker_id, context)
    topics = tuple(
        AlterPartitionResponse.Topic(
            topic_id=topic.topic_id,
            partitions=tuple(
                request_state.decide(topic.topic_id, proposal) for proposal in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return ControllerResult(
        tuple(request_state.changes.records),
        AlterPartitionResponse(topics=topics),
        tuple(request_state.changes.warnings),
    )


class _AlterPartition:
    """The state of one request."""

    def __init__(self, image: MetadataImage, leader: int, context: ControllerContext) -> None:
        self.changes = PartitionChanges()
        self._image = image
        self._leader = leader
        self._election_configs = ElectionConfigs(image, context)
        self._leaders = AcceptableLeaders(image)
        # Partitions that this request has changed: a second proposal for one of them is stale.
        self._changed: dict[tuple[UUID, int], PartitionState] = {}

    def decide(self, topic_id: UUID, proposal: Proposal) -> PartitionResponse:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
        index = proposal.partition_index
        state = self._changed.get((topic.id, index)) or topic.partitions.get(index)
        if state is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        members = _members(proposal)
        isr = tuple(broker_id for broker_id, _epoch in members)
        refusal = (
            _stale(state, proposal, self._leader)
            or _malformed(state, proposal, isr)
            or self._ineligible(state, members)
        )
        return (
            self._accept(topic, index, state, proposal, isr)
            if refusal is None
            else _refused(proposal, refusal)
        )

    def _accept(
        self,
        topic: TopicImage,
        index: int,
        state: PartitionState,
        proposal: Proposal,
        isr: tuple[int, ...],
    ) -> PartitionResponse:
        config = self._election_configs.of(topic)
        election = Election.UNCLEAN if config.unclean_enabled else Election.ONLINE
        target = PartitionTarget(isr=isr, leader_recovery_state=proposal.leader_recovery_state)
        change = build_partition_change(
            topic, index, state, config, self._leaders, election, target
        )
        if change is None:
            return _accepted(index, state)
        self.changes.add(change)
        after = self._changed[topic.id, index] = apply_partition_change(state, change.record)
        if change.record.leader not in (NO_LEADER_CHANGE, self._leader):
            # The change completed a reassignment that removed the leader. It is committed, and the
            # error makes the broker wait for the new state.
            return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
        return _accepted(index, after)

    def _ineligible(self, state: PartitionState, members: Members) -> ErrorCode | None:
        """Refuse members that are inactive, that made their progress in an earlier epoch, or that
        join with an offline log directory."""
        for broker_id, epoch in members:
            broker = self._image.brokers.get(broker_id)
            if (
                broker is None
                or not broker.is_active
                or epoch not in (ANY_EPOCH, broker.epoch)
                or (broker_id not in state.isr and not self._leaders.accepts(state, broker_id))
            ):
                return ErrorCode.INELIGIBLE_REPLICA
        return None


def _members(proposal: Proposal) -> Members:
    if proposal.new_isr_with_epochs:
        return [(member.broker_id, member.broker_epoch) for member in proposal.new_isr_with_epochs]
    return [(broker_id, ANY_EPOCH) for broker_id in proposal.new_isr]


def _refused(proposal: Proposal, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=proposal.partition_index, error_code=code)


def _stale(state: PartitionState, proposal: Proposal, leader: int) -> ErrorCode | None:
    """A leader with newer epochs has heard from another active controller."""
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    return (
        ErrorCode.INVALID_UPDATE_VERSION
        if proposal.partition_epoch < state.partition_epoch
        else None
    )


def _malformed(state: PartitionState, proposal: Proposal, isr: tuple[int, ...]) -> ErrorCode | None:
    recovering = proposal.leader_recovery_state == RECOVERING
    if (
        proposal.leader_recovery_state not in (RECOVERED, RECOVERING)
        or len(set(isr)) != len(isr)
        or not set(isr) <= set(state.replicas)
        or state.leader not in isr
        or (recovering and (len(isr) > 1 or state.leader_recovery_state == RECOVERED))
    ):
        return ErrorCode.INVALID_REQUEST
    return None


def _accepted(index: int, state: PartitionState) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )
