"""Where the leaders are that a client should have asked instead: the addresses that go with an
answer of NOT_LEADER_OR_FOLLOWER."""

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
    """Nothing is looked up where no leader is named, which is nearly always so. -1 is no leader."""
    if not any(leader >= 0 for leader in leaders):
        return []
    return [
        broker
        for broker in parts.metadata.advertised(context.listener_name, context.local_host)
        if broker.node_id in leaders
    ]
