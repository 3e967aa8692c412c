"""DescribeClientQuotas: the quotas of the entities that match a filter (KIP-546).

Behaviour
  The response has this node's metadata. A component of the filter matches a name, the default, or
  any of both. With strict, entities that have other parts too do not match. INVALID_REQUEST for a
  filter that is not valid, UNSUPPORTED_VERSION for another entity type. Needs DESCRIBE_CONFIGS on
  the cluster.

Version notes
  v1 is flexible; nothing else changes.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import Exclusive, RequestContext
from penstock.limits import DESCRIBED_QUOTAS_A_TURN
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.protocol.schema import EncodedArray
from penstock.security.quotas.entities import QuotaFilter, quota_filter

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

Entry = DescribeClientQuotasResponse.Entry


class Parts(Protocol):
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse | Exclusive[DescribeClientQuotasResponse]:
    try:
        wanted = quota_filter(
            ((each.entity_type, each.match_type, each.match) for each in request.components),
            strict=request.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return Exclusive(_describe(parts, wanted, context.version))


async def _describe(
    parts: Parts, wanted: QuotaFilter, version: int
) -> DescribeClientQuotasResponse:
    """A cluster may have many entities: they are compared and encoded in turns of the event
    loop."""
    encoded: list[bytes] = []
    for count, (entity, values) in enumerate(parts.metadata.image.client_quotas.items(), 1):
        if wanted.matches(entity):
            described = Entry(
                entity=tuple(
                    Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity
                ),
                values=tuple(Entry.Value(key=key, value=value) for key, value in values.items()),
            )
            encoded.append(encode_struct(DescribeClientQuotasResponse, described, version))
        if count % DESCRIBED_QUOTAS_A_TURN == 0:
            await asyncio.sleep(0)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=EncodedArray(len(encoded), b"".join(encoded)),  # type: ignore[arg-type]
    )
