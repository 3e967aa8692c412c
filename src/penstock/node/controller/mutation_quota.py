"""Runs decisions that create and delete partitions under the quota of their client (KIP-599).

The active controller has the quota: all nodes forward such requests to it. It is the same whether a
client asks this node or another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.protocol.schema import changed
from penstock.security.principals import KafkaPrincipal
from penstock.security.quotas.client_quotas import MutationQuota

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController

Q = TypeVar("Q")
R = TypeVar("R")
Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

# CreateTopics, DeleteTopics and CreatePartitions: the first version whose clients know
# THROTTLING_QUOTA_EXCEEDED. Clients of earlier versions are throttled instead.
STRICT_SINCE = {19: 6, 20: 5, 37: 3}


class Requester(Protocol):
    """The client of a request that the active controller executes."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def principal(self) -> KafkaPrincipal: ...


class DecideMutation(Protocol[Q_contra, R_co]):
    def __call__(
        self,
        controller: NodeController,
        request: Q_contra,
        mutations: MutationQuota | None = None,
        /,
    ) -> Awaitable[R_co]: ...


def under_quota(
    decide: DecideMutation[Q, R], requester: Requester | None, api_key: int, version: int
) -> Callable[[NodeController, Q], Awaitable[R]]:
    """Return the decision under the quota of the client. Without a requester it is a request of a
    node, which has none."""

    async def decide_under_quota(controller: NodeController, request: Q) -> R:
        quota = None
        if requester is not None:
            is_strict = version >= STRICT_SINCE[api_key]
            quota = controller.mutation_quota(
                requester.principal.name, requester.client_id or "", is_strict=is_strict
            )
        if quota is None:
            return await decide(controller, request)
        response: Any = await decide(controller, request, quota)
        throttle_ms = controller.throttle_ms(quota)
        if throttle_ms:
            response = changed(response, throttle_time_ms=throttle_ms)
        return response  # type: ignore[no-any-return]

    return decide_under_quota
