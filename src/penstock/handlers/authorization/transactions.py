"""The checks of requests about producer ids and transactions."""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.handlers.authorization.calls import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Call,
    each,
    kept,
    nested,
    split,
    then,
    topic_error,
    with_errors,
)
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.turns import Turns
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
    TopicResult,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
# From this version on only brokers send AddPartitionsToTxn.
_OF_BROKERS_SINCE = 4


def init_producer_id(guard: Guard, request: InitProducerIdRequest, call: Call) -> Any:
    """WRITE on the transactional id, and TWO_PHASE_COMMIT if the client asks for it (KIP-939). An
    idempotent producer needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
    name = request.transactional_id
    if name is not None:
        if not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name) or (
            request.enable2_pc
            and not guard.allows(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, name)
        ):
            return InitProducerIdResponse(error_code=TRANSACTIONAL_ID_DENIED)
    elif not guard.allows_some(AclOperation.WRITE, TOPIC) and not guard.allows_cluster(
        AclOperation.IDEMPOTENT_WRITE
    ):
        return InitProducerIdResponse(error_code=CLUSTER_DENIED)
    return call.proceed(request)


def add_partitions_to_txn(
    guard: Guard, request: AddPartitionsToTxnRequest, call: Call
) -> Turns[Any]:
    """WRITE on the transactional id and on the topics; CLUSTER_ACTION for the versions of brokers.
    If a topic is refused, no partition is added."""
    if guard.version >= _OF_BROKERS_SINCE:
        if guard.allows_cluster(AclOperation.CLUSTER_ACTION):
            return call.proceed(request)
        return AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED)
    topics = request.v3_and_below_topics
    name = request.v3_and_below_transactional_id
    if not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name):
        codes = dict.fromkeys(topics, TRANSACTIONAL_ID_DENIED)
    else:
        _allowed, denied = yield from split(
            guard, AclOperation.WRITE, TOPIC, topics, lambda topic: topic.name
        )
        if not denied:
            return call.proceed(request)
        codes = dict.fromkeys(denied, TOPIC_DENIED)

    def code(topic: Topic, index: int) -> ErrorCode:
        if topic in codes:
            return codes[topic]
        found = call.image.topics.get(topic.name)
        return (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None or index not in found.partitions
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )

    def not_added(topic: Topic) -> Turns[TopicResult]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda index: TopicResult.PartitionResult(
                partition_index=index, partition_error_code=code(topic, index)
            ),
        )
        return TopicResult(name=topic.name, results_by_partition=partitions)

    results = yield from nested(guard.pace, topics, not_added)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def add_offsets_to_txn(guard: Guard, request: AddOffsetsToTxnRequest, call: Call) -> Any:
    """WRITE on the transactional id, and READ on the group."""
    if not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
    if not guard.allows(AclOperation.READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return call.proceed(request)


def end_txn(guard: Guard, request: EndTxnRequest, call: Call) -> Any:
    """WRITE on the transactional id."""
    if not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
    return call.proceed(request)


def txn_offset_commit(guard: Guard, request: TxnOffsetCommitRequest, call: Call) -> Turns[Any]:
    """WRITE on the transactional id, and READ on the group and on the topics."""
    allowed, denied, code = request.topics[:0], request.topics, TOPIC_DENIED
    if not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        code = TRANSACTIONAL_ID_DENIED
    elif not guard.allows(AclOperation.READ, GROUP, request.group_id):
        code = GROUP_DENIED
    else:
        allowed, denied = yield from split(
            guard, AclOperation.READ, TOPIC, request.topics, lambda topic: topic.name
        )
        if not denied:
            return call.proceed(request)

    errors = yield from nested(
        guard.pace,
        denied,
        lambda topic: topic_error(guard, topic, TxnOffsetCommitResponse, code),
    )
    return with_errors(call, request, {"topics": allowed}, "topics", errors)


def write_txn_markers(guard: Guard, request: WriteTxnMarkersRequest, call: Call) -> Turns[Any]:
    """ALTER on the cluster, as operators have, or CLUSTER_ACTION, as brokers have."""
    if guard.allows_cluster(AclOperation.ALTER, is_filter=True) or guard.allows_cluster(
        AclOperation.CLUSTER_ACTION
    ):
        return call.proceed(request)
    marker_response = WriteTxnMarkersResponse.Marker

    def of_topic(topic: Any) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partition_indexes,
            lambda index: marker_response.Topic.Partition(
                partition_index=index, error_code=CLUSTER_DENIED
            ),
        )
        return marker_response.Topic(name=topic.name, partitions=partitions)

    def of_marker(marker: Any) -> Turns[Any]:
        topics = yield from nested(guard.pace, marker.topics, of_topic)
        return marker_response(producer_id=marker.producer_id, topics=topics)

    return WriteTxnMarkersResponse(
        markers=(yield from nested(guard.pace, request.markers, of_marker))
    )


def describe_transactions(
    guard: Guard, request: DescribeTransactionsRequest, call: Call
) -> Turns[Any]:
    """DESCRIBE on the transactional ids. Topics that the client may not describe are left out."""
    state_response = DescribeTransactionsResponse.TransactionState
    allowed, denied = yield from split(
        guard,
        AclOperation.DESCRIBE,
        TRANSACTIONAL_ID,
        request.transactional_ids,
        lambda name: name,
    )
    errors = yield from each(
        guard.pace,
        denied,
        lambda name: state_response(transactional_id=name, error_code=TRANSACTIONAL_ID_DENIED),
    )
    if not allowed:
        return DescribeTransactionsResponse(transaction_states=errors)

    def describable(state: DescribeTransactionsResponse.TransactionState) -> Turns[Any]:
        topics = yield from kept(
            guard.pace,
            state.topics,
            lambda topic: guard.allows(AclOperation.DESCRIBE, TOPIC, topic.topic, is_filter=True),
        )
        return state if len(topics) == len(state.topics) else changed(state, topics=topics)

    def convert(response: DescribeTransactionsResponse) -> Turns[DescribeTransactionsResponse]:
        states = yield from nested(guard.pace, response.transaction_states, describable)
        return changed(response, transaction_states=states + errors)

    part = changed(request, transactional_ids=allowed) if errors else request
    return then(call.proceed(part), convert)
