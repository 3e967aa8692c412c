"""DescribeQuorum: the quorum as its leader sees it, in Kafka's message. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.config.quorum import Address
from penstock.errors import ErrorCode
from penstock.ids import METADATA_TOPIC
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.raft.machine import Raft
from penstock.raft.roles import Leader, Progress

_Partition = DescribeQuorumResponse.Topic.Partition


def describe(
    request: DescribeQuorumRequest,
    raft: Raft,
    now: float,
    now_ms: int,
    listener: str,
    addresses: Mapping[int, Address],
) -> DescribeQuorumResponse:
    named = [
        (topic.topic_name, [one.partition_index for one in topic.partitions])
        for topic in request.topics
    ]
    if named != [(METADATA_TOPIC, [0])]:
        return _of(_Partition(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    role = raft.role
    if not isinstance(role, Leader):
        return _of(
            _Partition(
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                error_message=f"node {raft.node_id} does not lead the quorum",
                leader_id=raft.known_leader,
                leader_epoch=raft.epoch,
            )
        )

    def at(time: float) -> int:
        """Times of the monotonic clock, told as those of the wall clock."""
        return -1 if time < 0 else now_ms - int((now - time) * 1000)

    own = _Partition.Replica(
        replica_id=raft.node_id,
        log_end_offset=raft.log.end.offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    voters = [
        own if voter == raft.node_id else _replica(voter, role.voters[voter], at)
        for voter in raft.voters
    ]
    partition = _Partition(
        leader_id=raft.node_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=tuple(voters),
        observers=tuple(
            _replica(observer, progress, at)
            for observer, progress in sorted(role.observers.items())
        ),
    )
    nodes = tuple(
        _node(voter, listener, addresses[voter]) for voter in raft.voters if voter in addresses
    )
    return _of(partition, nodes)


def _replica(replica_id: int, progress: Progress, at: Callable[[float], int]) -> _Partition.Replica:
    return _Partition.Replica(
        replica_id=replica_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=at(progress.fetched_at),
        last_caught_up_timestamp=at(progress.caught_up_at),
    )


def _node(node_id: int, listener: str, address: Address) -> DescribeQuorumResponse.Node:
    one = DescribeQuorumResponse.Node.Listener(name=listener, host=address.host, port=address.port)
    return DescribeQuorumResponse.Node(node_id=node_id, listeners=(one,))


def _of(
    partition: _Partition, nodes: tuple[DescribeQuorumResponse.Node, ...] = ()
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=(DescribeQuorumResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=nodes,
    )
