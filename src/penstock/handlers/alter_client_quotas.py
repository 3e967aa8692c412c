"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546).

Behaviour
  The active controller executes it. Each entity succeeds or fails on its own. This node sends the
  response when its own metadata has the quotas. With validate_only the controller writes nothing.
  INVALID_REQUEST for an entity, a key or a value that is not valid. Needs ALTER_CONFIGS on the
  cluster.

Version notes
  v1 is flexible; nothing else changes.

Not implemented
  Names of hosts as addresses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.security.quotas.entities import quota_entity

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


class Parts(Protocol):
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: AlterClientQuotasRequest, context: RequestContext
) -> Awaitable[AlterClientQuotasResponse]:
    return _alter(parts, request, context)


async def _alter(
    parts: Parts, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    before = parts.metadata.image.client_quotas
    response = await ask_controller(parts.controllers, request, context, decide, refused)
    if not request.validate_only:
        failed = {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
            for entry in response.entries
            if entry.error_code
        }
        altered = {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity): entry.ops
            for entry in request.entries
        }

        def has_all(image: MetadataImage) -> bool:
            return all(
                _has(image.client_quotas.get(entity), before.get(entity), ops)
                for entity, ops in altered.items()
                if entity not in failed
            )

        await parts.metadata.wait_until(has_all)
    return response


def _has(
    values: Mapping[str, float] | None,
    before: Mapping[str, float] | None,
    ops: Iterable[AlterClientQuotasRequest.Entry.Op],
) -> bool:
    """Return True if an entity has its new values, or others: two requests at the same time may
    alter it, and those of the first are never seen if both are applied together."""
    if values is not before:
        return True
    found = values or {}
    return all(found.get(op.key) == (None if op.remove else op.value) for op in ops)


def decide(
    controller: NodeController, request: AlterClientQuotasRequest
) -> Awaitable[AlterClientQuotasResponse]:
    # Imported on first use so that a node starts quickly.
    from penstock.controller.client_quotas import alter_client_quotas

    return controller.decide(alter_client_quotas, request)


def refused(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """Refuse each entity: the response has no error of its own."""
    entry = AlterClientQuotasResponse.Entry
    return AlterClientQuotasResponse(
        entries=tuple(
            entry(
                error_code=error.code,
                error_message=error.message,
                entity=tuple(
                    entry.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in each.entity
                ),
            )
            for each in request.entries
        )
    )
