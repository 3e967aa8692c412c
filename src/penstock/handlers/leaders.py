"""The endpoints of current leaders, which a response with NOT_LEADER_OR_FOLLOWER includes
(KIP-951)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from penstock.handlers.context import RequestContext

if TYPE_CHECKING:
    from penstock.node.metadata import Advertised, MetadataView


class Parts(Protocol):
    metadata: MetadataView


def endpoints_of(
    parts: Parts, context: RequestContext, leaders: Collection[int]
) -> list[Advertised]:
    """Return the endpoints of these brokers on the request's listener. Nearly all responses name no
    leader, or -1."""
    if not any(leader >= 0 for leader in leaders):
        return []
    return [
        broker
        for broker in parts.metadata.advertised(context.listener_name, context.local_host)
        if broker.node_id in leaders
    ]
