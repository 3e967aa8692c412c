"""The checks of requests that need one operation on the cluster as a whole, and of configs."""

from __future__ import annotations

from typing import Any

from penstock.handlers.authorization.calls import (
    FAILED,
    Call,
    each,
    kept,
    nested,
    with_errors,
)
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.turns import Turns
from penstock.protocol.apis import response_class
from penstock.protocol.schema import fields_of
from penstock.security.acls import AclOperation, ResourceType

_DENIED = FAILED[ResourceType.CLUSTER]
_CODE, _MESSAGE = _DENIED.code, _DENIED.message

# Types of config resources; the protocol's numbers.
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32


def open_to_all(_guard: Guard, request: Any, call: Call) -> Any:
    """Requests that need no right, or whose handlers ask `context.guard` themselves."""
    return call.proceed(request)


def alter(guard: Guard, request: Any, call: Call) -> Any:
    return _needs(guard, AclOperation.ALTER, request, call)


def describe(guard: Guard, request: Any, call: Call) -> Any:
    return _needs(guard, AclOperation.DESCRIBE, request, call)


def cluster_action(guard: Guard, request: Any, call: Call) -> Any:
    return _needs(guard, AclOperation.CLUSTER_ACTION, request, call)


def alter_configs_of_cluster(guard: Guard, request: Any, call: Call) -> Any:
    return _needs(guard, AclOperation.ALTER_CONFIGS, request, call)


def describe_configs_of_cluster(guard: Guard, request: Any, call: Call) -> Any:
    return _needs(guard, AclOperation.DESCRIBE_CONFIGS, request, call)


def _needs(guard: Guard, operation: AclOperation, request: Any, call: Call) -> Any:
    if guard.allows_cluster(operation):
        return call.proceed(request)
    return _refusals.get(type(request).__name__, _refused)(guard, request, call)


def _refused(_guard: Guard, _request: Any, call: Call) -> Any:
    """Return a response with the error at its top level."""
    response: Any = response_class(call.api_key)
    names = {field.name for field in fields_of(response)}
    if "error_message" in names:
        return response(error_code=_CODE, error_message=_MESSAGE)
    return response(error_code=_CODE)


# Responses that have errors for the parts of a request


def _refused_elections(guard: Guard, request: Any, call: Call) -> Turns[Any]:
    """The response to v0 has the errors of the partitions only."""
    response: Any = response_class(call.api_key)
    result = response.ReplicaElectionResult

    def of_topic(topic: Any) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda index: result.PartitionResult(
                partition_id=index, error_code=_CODE, error_message=_MESSAGE
            ),
        )
        return result(topic=topic.topic, partition_result=partitions)

    results = yield from nested(guard.pace, request.topic_partitions or (), of_topic)
    return response(error_code=_CODE if guard.version >= 1 else 0, replica_election_results=results)


def _refused_reassignments(guard: Guard, request: Any, call: Call) -> Turns[Any]:
    response: Any = response_class(call.api_key)
    topic_response = response.Response

    def of_topic(topic: Any) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda partition: topic_response.Partition(
                partition_index=partition.partition_index, error_code=_CODE, error_message=_MESSAGE
            ),
        )
        return topic_response(name=topic.name, partitions=partitions)

    responses = yield from nested(guard.pace, request.topics, of_topic)
    return response(error_code=_CODE, error_message=_MESSAGE, responses=responses)


def _refused_replica_moves(guard: Guard, request: Any, call: Call) -> Turns[Any]:
    response: Any = response_class(call.api_key)

    def of_topic(topic: Any) -> Turns[Any]:
        partitions = yield from each(
            guard.pace,
            topic.partitions,
            lambda index: response.Result.Partition(partition_index=index, error_code=_CODE),
        )
        return response.Result(topic_name=topic.name, partitions=partitions)

    topics = (topic for directory in request.dirs for topic in directory.topics)
    return response(results=(yield from nested(guard.pace, topics, of_topic)))


def _refused_creations(_guard: Guard, request: Any, call: Call) -> Any:
    response: Any = response_class(call.api_key)
    result = response.Result(error_code=_CODE, error_message=_MESSAGE)
    return response(results=(result,) * len(request.creations))


def _refused_filters(_guard: Guard, request: Any, call: Call) -> Any:
    response: Any = response_class(call.api_key)
    result = response.FilterResult(error_code=_CODE, error_message=_MESSAGE)
    return response(filter_results=(result,) * len(request.filters))


def _refused_users(guard: Guard, request: Any, call: Call) -> Turns[Any]:
    response: Any = response_class(call.api_key)
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    results = yield from each(
        guard.pace,
        users,
        lambda user: response.Result(user=user, error_code=_CODE, error_message=_MESSAGE),
    )
    return response(results=results)


def _refused_quotas(guard: Guard, request: Any, call: Call) -> Turns[Any]:
    response: Any = response_class(call.api_key)
    entry = response.Entry

    def of_entry(refused: Any) -> Any:
        return entry(
            error_code=_CODE,
            error_message=_MESSAGE,
            entity=tuple(
                entry.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in refused.entity
            ),
        )

    return response(entries=(yield from each(guard.pace, request.entries, of_entry)))


_refusals = {
    "ElectLeadersRequest": _refused_elections,
    "AlterPartitionReassignmentsRequest": _refused_reassignments,
    "AlterReplicaLogDirsRequest": _refused_replica_moves,
    "CreateAclsRequest": _refused_creations,
    "DeleteAclsRequest": _refused_filters,
    "AlterUserScramCredentialsRequest": _refused_users,
    "AlterClientQuotasRequest": _refused_quotas,
}


# Configs


def describe_configs(guard: Guard, request: Any, call: Call) -> Any:
    """DESCRIBE_CONFIGS on the topics, the groups, or the cluster for configs of brokers."""
    return _configs(guard, request, call, "results", AclOperation.DESCRIBE_CONFIGS)


def alter_configs(guard: Guard, request: Any, call: Call) -> Any:
    """ALTER_CONFIGS on the topics, the groups, or the cluster for configs of brokers."""
    return _configs(guard, request, call, "responses", AclOperation.ALTER_CONFIGS)


def alter_configs_of_controller(guard: Guard, request: Any, call: Call) -> Any:
    """As `alter_configs`, but the loggers of a controller need CLUSTER_ACTION."""
    return _configs(
        guard,
        request,
        call,
        "responses",
        AclOperation.ALTER_CONFIGS,
        of_loggers=AclOperation.CLUSTER_ACTION,
    )


def _configs(
    guard: Guard,
    request: Any,
    call: Call,
    results: str,
    operation: AclOperation,
    *,
    of_loggers: AclOperation | None = None,
) -> Turns[Any]:
    response: Any = response_class(call.api_key)
    result = response.Result if results == "results" else response.Response
    errors: list[Any] = []

    def may(resource: Any) -> bool:
        kind, needed = resource.resource_type, operation
        if kind in (_TOPIC, _GROUP):
            resource_type = ResourceType.TOPIC if kind == _TOPIC else ResourceType.GROUP
            allowed = guard.allows(needed, resource_type, resource.resource_name)
        elif kind in (_BROKER, _BROKER_LOGGER, _CLIENT_METRICS):
            resource_type = ResourceType.CLUSTER
            if kind == _BROKER_LOGGER and of_loggers is not None:
                needed = of_loggers
            allowed = guard.allows_cluster(needed)
        else:
            # The handler refuses a type that is not known.
            return True
        if not allowed:
            errors.append(
                result(
                    error_code=FAILED[resource_type].code,
                    error_message=FAILED[resource_type].message,
                    resource_type=kind,
                    resource_name=resource.resource_name,
                )
            )
        return allowed

    allowed = yield from kept(guard.pace, request.resources, may)
    if not errors:
        return call.proceed(request)
    return with_errors(call, request, {"resources": allowed}, results, tuple(errors))
