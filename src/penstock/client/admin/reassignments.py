"""Start, cancel and list reassignments of partitions to other replicas (KIP-455)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.errors import check, error_of
from penstock.client.routing import by_topic
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.limits import REASSIGNED_PARTITIONS_A_REQUEST
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

# The target replicas of partitions. None cancels the reassignment of a partition.
Assignments = Mapping[TopicPartition, Sequence[int] | None]

_Topic = AlterPartitionReassignmentsRequest.Topic


class PartitionReassignment(NamedTuple):
    """A reassignment in progress. `replicas` has those to add and those to remove, too."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter(
    cluster: Cluster, assignments: Assignments, *, allow_factor_change: bool = True
) -> dict[TopicPartition, KafkaError | None]:
    """Start or cancel reassignments, and return each partition's error or None.

    A request has a bounded number of partitions. If one of several fails as a whole, KafkaError is
    raised, and the reassignments of those before it have begun. A cancellation whose response was
    lost may report NO_REASSIGNMENT_IN_PROGRESS.
    """
    results: dict[TopicPartition, KafkaError | None] = {}
    remaining = iter(assignments)
    while some := list(islice(remaining, REASSIGNED_PARTITIONS_A_REQUEST)):
        results |= await _alter_some(
            cluster,
            {partition: assignments[partition] for partition in some},
            allow_factor_change=allow_factor_change,
        )
    return results


async def _alter_some(
    cluster: Cluster, assignments: Assignments, *, allow_factor_change: bool
) -> dict[TopicPartition, KafkaError | None]:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(cluster.request_timeout_s * 1000),
        allow_replication_factor_change=allow_factor_change,
        topics=tuple(
            _Topic(
                name=name,
                partitions=tuple(
                    _Topic.Partition(
                        partition_index=index,
                        replicas=_replicas(assignments[TopicPartition(name, index)]),
                    )
                    for index in indexes
                ),
            )
            for name, indexes in by_topic(assignments.keys()).items()
        ),
    )

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        response = await cluster.call(request, AlterPartitionReassignmentsResponse)
        check(response.error_code, response.error_message or "AlterPartitionReassignments failed")
        return {
            TopicPartition(topic.name, partition.partition_index): error_of(
                partition.error_code, partition.error_message or "the partition was not reassigned"
            )
            if partition.error_code
            else None
            for topic in response.responses
            for partition in topic.partitions
        }

    return await cluster.retry(attempt)


def _replicas(replicas: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if replicas is None else tuple(replicas)


async def list_ongoing(
    cluster: Cluster, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments in progress of these partitions or, without them, of all."""
    topics = None
    # Among more partitions all reassignments are listed: the request would be too large.
    is_short = partitions is not None and len(partitions) <= REASSIGNED_PARTITIONS_A_REQUEST
    if partitions is not None and is_short:
        topics = tuple(
            ListPartitionReassignmentsRequest.Topic(name=name, partition_indexes=tuple(indexes))
            for name, indexes in by_topic(partitions).items()
        )
    request = ListPartitionReassignmentsRequest(
        timeout_ms=int(cluster.request_timeout_s * 1000), topics=topics
    )

    async def attempt() -> dict[TopicPartition, PartitionReassignment]:
        response = await cluster.call(request, ListPartitionReassignmentsResponse)
        check(response.error_code, response.error_message or "ListPartitionReassignments failed")
        return {
            TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
                partition.replicas, partition.adding_replicas, partition.removing_replicas
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    ongoing = await cluster.retry(attempt)
    if partitions is None or is_short:
        return ongoing
    selected = set(partitions)
    return {partition: ongoing[partition] for partition in ongoing if partition in selected}
