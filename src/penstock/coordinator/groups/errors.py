"""Error responses of the group APIs: what a client gets when its request does not reach a loaded
state machine, or the step was refused. PURE."""

from __future__ import annotations

from penstock.coordinator.classic.responses import join_error, sync_error
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

# Clients of earlier versions end with an error while the group is being loaded (KAFKA-7296).
_TXN_LOADING_VERSION = 2


def join_group(request: JoinGroupRequest, version: int, error: KafkaError) -> JoinGroupResponse:
    return join_error(error.code, request.member_id, version)


def sync_group(error: KafkaError) -> SyncGroupResponse:
    return sync_error(error.code)


def heartbeat(error: KafkaError) -> HeartbeatResponse:
    """A member stays in its group while the group is being loaded, as in Kafka."""
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)


def leave_group(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


def consumer_group_heartbeat(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message, assignment=None
    )


def offset_commit(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(offset_commit_topic(topic, error.code) for topic in request.topics)
    )


def offset_commit_topic(
    topic: OffsetCommitRequest.Topic, code: ErrorCode
) -> OffsetCommitResponse.Topic:
    return OffsetCommitResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponse.Topic.Partition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ),
    )


def txn_offset_commit(
    request: TxnOffsetCommitRequest, version: int, error: KafkaError
) -> TxnOffsetCommitResponse:
    code = error.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _TXN_LOADING_VERSION:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=tuple(txn_offset_commit_topic(topic, code) for topic in request.topics)
    )


def txn_offset_commit_topic(
    topic: TxnOffsetCommitRequest.Topic, code: ErrorCode
) -> TxnOffsetCommitResponse.Topic:
    return TxnOffsetCommitResponse.Topic(
        name=topic.name,
        partitions=tuple(
            TxnOffsetCommitResponse.Topic.Partition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ),
    )


def offset_fetch(group_id: str, error: KafkaError) -> OffsetFetchResponse.Group:
    """Older clients look for the coordinator again only after NOT_COORDINATOR."""
    unavailable = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return OffsetFetchResponse.Group(
        group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR if unavailable else error.code
    )


def offset_delete(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


def delete_group(group_id: str, error: KafkaError) -> DeleteGroupsResponse.Result:
    return DeleteGroupsResponse.Result(group_id=group_id, error_code=error.code)


def describe_group(group_id: str, error: KafkaError) -> DescribeGroupsResponse.Group:
    return DescribeGroupsResponse.Group(group_id=group_id, error_code=error.code)


def describe_consumer_group(
    group_id: str, error: KafkaError
) -> ConsumerGroupDescribeResponse.Group:
    return ConsumerGroupDescribeResponse.Group(
        group_id=group_id, error_code=error.code, error_message=error.message
    )
