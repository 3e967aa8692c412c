"""Asking the controller to elect leaders (KIP-460)."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from penstock.client.cluster import Cluster
from penstock.client.faults import check, error_of
from penstock.client.leaders import by_topic
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    cluster: Cluster, election: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """What became of each partition; None asks for all that need an election, and only they are
    answered."""
    asked = None
    if partitions is not None:
        grouped = by_topic(partitions).items()
        asked = tuple(
            ElectLeadersRequest.TopicPartition(topic=topic, partitions=tuple(indexes))
            for topic, indexes in grouped
        )
    timeout_ms = int(cluster.request_timeout_s * 1000)
    request = ElectLeadersRequest(
        election_type=election, topic_partitions=asked, timeout_ms=timeout_ms
    )

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        answer = await cluster.call(request, ElectLeadersResponse)
        check(answer.error_code, "the controller elected no leaders")
        return {
            TopicPartition(topic.topic, one.partition_id): _outcome(one)
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    return await cluster.retry(attempt)


def _outcome(one: ElectLeadersResponse.ReplicaElectionResult.PartitionResult) -> KafkaError | None:
    return (
        error_of(one.error_code, one.error_message or "no leader was elected")
        if one.error_code
        else None
    )
