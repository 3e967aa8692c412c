"""ElectLeaders: elects the preferred leader of partitions, or an unclean one."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    @struct
    class TopicPartition:
        topic: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    election_type: int = int8("1+")
    topic_partitions: tuple[TopicPartition, ...] | None = array(TopicPartition, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    @struct
    class ReplicaElectionResult:
        @struct
        class PartitionResult:
            partition_id: int = int32("0+")
            error_code: int = int16("0+")
            error_message: str | None = string("0+", nullable="0+")

        topic: str = string("0+")
        partition_result: tuple[PartitionResult, ...] = array(PartitionResult, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = array(ReplicaElectionResult, "0+")
