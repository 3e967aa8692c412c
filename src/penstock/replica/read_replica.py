"""Which replica a consumer should rather read from: the one in its rack (KIP-392). PURE."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metadata.image import BrokerImage
from penstock.replica.leader import Leader

NO_REPLICA = -1


def replica_in_rack(
    leader: Leader, node_id: int, rack: str, offset: int, brokers: Mapping[int, BrokerImage]
) -> int:
    """An in-sync follower in the rack that has the offset, the one that has most; -1 where the
    leader is as good."""

    def is_near(replica: int) -> bool:
        broker = brokers.get(replica)
        return broker is not None and broker.rack == rack and not broker.fenced

    if not rack or is_near(node_id):
        return NO_REPLICA
    near = [
        follower
        for replica, follower in leader.followers.items()
        if replica in leader.isr
        and is_near(replica)
        and follower.start_offset <= offset <= follower.end_offset
    ]
    return (
        max(near, key=lambda follower: (follower.end_offset, -follower.replica_id)).replica_id
        if near
        else NO_REPLICA
    )
