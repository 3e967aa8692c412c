"""The checks of requests about topics and their records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from penstock.controller.topics.delete import NO_SUCH_TOPIC, NO_SUCH_TOPIC_ID
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.authorization.calls import (
    FAILED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Call,
    by_topic,
    each,
    kept,
    nested,
    split,
    then,
    topic_error,
    topic_name,
    with_errors,
)
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.transactional_produce import has_transaction
from penstock.handlers.turns import Turns
from penstock.ids import NO_UUID
from penstock.limits import AUTHORIZED_A_TURN
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
_NO_ACKS = 0
_MESSAGE = FAILED[TOPIC].message


def produce(guard: Guard, request: ProduceRequest, call: Call) -> Turns[Any]:
    """WRITE on the topics, and on the transactional id if a batch is transactional. The producer
    ids of others are checked by InitProducerId. The handler does not get topics whose ids are
    unknown: this node may know them when a check of several turns is over."""
    # The most items that the check counts: each topic, and if it is refused its partitions, and the
    # topic again.
    if sum(2 + len(topic.partition_data) for topic in request.topic_data) >= AUTHORIZED_A_TURN:
        request = _owning_its_records(request)
    transactional_id = request.transactional_id
    allowed: list[ProduceRequest.TopicData] = []
    refused: list[tuple[ProduceRequest.TopicData, ErrorCode]] = []
    if (
        has_transaction(request)
        and transactional_id is not None
        and not guard.allows(AclOperation.WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        refused = [(topic, TRANSACTIONAL_ID_DENIED) for topic in request.topic_data]
    else:
        for topic in request.topic_data:
            name = topic_name(call.image, topic.name, topic.topic_id)
            if name is None:
                refused.append((topic, ErrorCode.UNKNOWN_TOPIC_ID))
            elif guard.allows(AclOperation.WRITE, TOPIC, name):
                allowed.append(topic)
            else:
                refused.append((topic, TOPIC_DENIED))
            if guard.pace.is_over():
                yield
        if not refused:
            return call.proceed(request)
    topic_response = ProduceResponse.Response
    partition_response = topic_response.PartitionResponse

    def not_produced(
        refusal: tuple[ProduceRequest.TopicData, ErrorCode],
    ) -> Turns[ProduceResponse.Response]:
        topic, code = refusal
        partitions = yield from each(
            guard.pace,
            topic.partition_data,
            lambda partition: partition_response(
                index=partition.index, error_code=code, base_offset=-1
            ),
        )
        # The errors of Produce are counted by its handler, and not by the server.
        call.parts.replicas.counts.produce_errors[code] += len(partitions)
        return topic_response(
            name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
        )

    errors = yield from nested(guard.pace, refused, not_produced)

    def add(response: ProduceResponse | None) -> ProduceResponse | None:
        if request.acks == _NO_ACKS or response is None:
            # There is no response: the producer notices that its connection is closed.
            code = refused[0][1]
            raise KafkaError(code, f"produce with acks=0 is refused: {code.name}")
        return changed(response, responses=response.responses + errors)

    if not allowed:
        return add(ProduceResponse())
    return then(call.proceed(changed(request, topic_data=tuple(allowed))), add)


def _owning_its_records(request: ProduceRequest) -> ProduceRequest:
    """Copy the records. They are windows into the receive buffer, which another connection may use
    when the first turn of this check is over."""
    return changed(
        request,
        topic_data=tuple(
            changed(
                topic,
                partition_data=tuple(
                    changed(data, records=None if data.records is None else bytes(data.records))
                    for data in topic.partition_data
                ),
            )
            for topic in request.topic_data
        ),
    )


def list_offsets(guard: Guard, request: ListOffsetsRequest, call: Call) -> Any:
    """DESCRIBE on the topics."""
    return by_topic(
        guard,
        AclOperation.DESCRIBE,
        request,
        call,
        lambda topic: topic_error(guard, topic, ListOffsetsResponse),
    )


def delete_records(guard: Guard, request: DeleteRecordsRequest, call: Call) -> Any:
    """DELETE on the topics."""
    return by_topic(
        guard,
        AclOperation.DELETE,
        request,
        call,
        lambda topic: topic_error(guard, topic, DeleteRecordsResponse, low_watermark=-1),
    )


def offset_for_leader_epoch(guard: Guard, request: OffsetForLeaderEpochRequest, call: Call) -> Any:
    """CLUSTER_ACTION on the cluster, as followers have, or DESCRIBE on the topics."""
    if guard.allows_cluster(AclOperation.CLUSTER_ACTION, is_filter=True):
        return call.proceed(request)
    topic_response = OffsetForLeaderEpochResponse.Topic

    def error_of(topic: OffsetForLeaderEpochRequest.Topic) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda partition: topic_response.Partition(
                partition=partition.partition, error_code=TOPIC_DENIED
            ),
        )
        return topic_response(topic=topic.topic, partitions=partitions)

    return by_topic(guard, AclOperation.DESCRIBE, request, call, error_of)


def describe_producers(guard: Guard, request: DescribeProducersRequest, call: Call) -> Any:
    """READ on the topics."""
    topic_response = DescribeProducersResponse.Topic

    def error_of(topic: DescribeProducersRequest.Topic) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partition_indexes,
            lambda index: topic_response.Partition(
                partition_index=index, error_code=TOPIC_DENIED, error_message=_MESSAGE
            ),
        )
        return topic_response(name=topic.name, partitions=partitions)

    return by_topic(guard, AclOperation.READ, request, call, error_of)


# Changes that the controller makes


def create_topics(guard: Guard, request: CreateTopicsRequest, call: Call) -> Turns[Any]:
    """CREATE on the cluster or on the topics. The configs of a new topic need DESCRIBE_CONFIGS."""
    if guard.allows_cluster(AclOperation.CREATE, is_filter=True):
        allowed, denied = request.topics, request.topics[:0]
    else:
        allowed, denied = yield from split(
            guard, AclOperation.CREATE, TOPIC, request.topics, lambda topic: topic.name
        )
    errors = yield from each(
        guard.pace,
        dict.fromkeys(topic.name for topic in denied),
        lambda name: CreateTopicsResponse.Topic(
            name=name, error_code=TOPIC_DENIED, error_message="Authorization failed."
        ),
    )
    if not allowed and errors:
        return CreateTopicsResponse(topics=errors)

    def described(topic: CreateTopicsResponse.Topic) -> CreateTopicsResponse.Topic:
        if topic.error_code or guard.allows(
            AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, is_filter=True
        ):
            return topic
        return CreateTopicsResponse.Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=topic.error_message,
            topic_config_error_code=TOPIC_DENIED,
            configs=(),
        )

    def convert(response: CreateTopicsResponse) -> Turns[CreateTopicsResponse]:
        topics = yield from each(guard.pace, response.topics, described)
        return changed(response, topics=topics + errors)

    return then(call.proceed(changed(request, topics=allowed) if errors else request), convert)


def delete_topics(guard: Guard, request: DeleteTopicsRequest, call: Call) -> Turns[Any]:
    """DELETE on the cluster or on the topics. A client that may not describe a topic does not learn
    its name, nor if it exists."""
    if guard.allows_cluster(AclOperation.DELETE, is_filter=True):
        return call.proceed(request)
    errors: list[DeleteTopicsResponse.Response] = []

    def may_delete(error: DeleteTopicsResponse.Response | None) -> bool:
        if error is not None:
            errors.append(error)
        return error is None

    names = yield from kept(
        guard.pace, request.topic_names, lambda name: may_delete(_refused_name(guard, name, call))
    )
    topics = yield from kept(
        guard.pace, request.topics, lambda topic: may_delete(_refused_topic(guard, topic, call))
    )
    if not errors:
        return call.proceed(request)
    allowed = {"topic_names": names, "topics": topics}
    return with_errors(call, request, allowed, "responses", tuple(errors))


def _refused_topic(
    guard: Guard, topic: DeleteTopicsRequest.Topic, call: Call
) -> DeleteTopicsResponse.Response | None:
    if topic.name is None and topic.topic_id != NO_UUID:
        return _refused_id(guard, topic.topic_id, call)
    if topic.name is not None and topic.topic_id == NO_UUID:
        return _refused_name(guard, topic.name, call)
    return None  # an invalid request, which the handler refuses


def _refused_name(guard: Guard, name: str, call: Call) -> DeleteTopicsResponse.Response | None:
    """As in Kafka a client that may describe a topic learns that it does not exist. The handler
    does not get that topic: another client may be creating it."""
    code, message = TOPIC_DENIED, _MESSAGE
    if guard.allows(AclOperation.DESCRIBE, TOPIC, name):
        if guard.allows(AclOperation.DELETE, TOPIC, name):
            return None
        if name not in call.image.topics:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC
    return DeleteTopicsResponse.Response(name=name, error_code=code, error_message=message)


def _refused_id(guard: Guard, topic_id: UUID, call: Call) -> DeleteTopicsResponse.Response | None:
    name = call.image.topic_names.get(topic_id)
    if name is None:
        return DeleteTopicsResponse.Response(
            name=None,
            topic_id=topic_id,
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            error_message=NO_SUCH_TOPIC_ID,
        )
    if guard.allows(AclOperation.DELETE, TOPIC, name):
        return None
    is_shown = guard.allows(AclOperation.DESCRIBE, TOPIC, name, is_filter=True)
    return DeleteTopicsResponse.Response(
        name=name if is_shown else None,
        topic_id=topic_id,
        error_code=TOPIC_DENIED,
        error_message=_MESSAGE,
    )


def create_partitions(guard: Guard, request: CreatePartitionsRequest, call: Call) -> Turns[Any]:
    """ALTER on the topics."""
    allowed, denied = yield from split(
        guard, AclOperation.ALTER, TOPIC, request.topics, lambda topic: topic.name
    )
    if not denied:
        return call.proceed(request)
    errors = yield from each(
        guard.pace,
        dict.fromkeys(topic.name for topic in denied),
        lambda name: CreatePartitionsResponse.Result(
            name=name, error_code=TOPIC_DENIED, error_message=_MESSAGE
        ),
    )
    return with_errors(call, request, {"topics": allowed}, "results", errors)
