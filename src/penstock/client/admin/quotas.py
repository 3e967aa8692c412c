"""Client quotas: describe and alter them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.security.quotas.entities import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    QuotaEntity,
    QuotaFilter,
    entity_text,
    quota_entity,
)

Entry = AlterClientQuotasRequest.Entry
Component = DescribeClientQuotasRequest.Component


async def describe_client_quotas(
    cluster: Cluster, quota_filter: QuotaFilter
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of the entities that match a filter."""
    named = (
        Component(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in quota_filter.names.items()
    )
    others = (
        Component(entity_type=kind, match_type=SPECIFIED, match=None)
        for kind in sorted(quota_filter.types)
    )
    request = DescribeClientQuotasRequest(components=(*named, *others), strict=quota_filter.strict)

    async def attempt() -> dict[QuotaEntity, dict[str, float]]:
        response = await cluster.call(request, DescribeClientQuotasResponse)
        check(response.error_code, response.error_message or "the quotas cannot be described")
        return {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    return await cluster.retry(attempt)


async def alter_client_quotas(
    cluster: Cluster,
    alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
) -> None:
    """Set quotas, or remove those whose value is None. Raises the error of the first entity that
    is refused."""
    request = AlterClientQuotasRequest(
        entries=tuple(
            Entry(
                entity=tuple(
                    Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity
                ),
                ops=tuple(
                    Entry.Op(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ),
            )
            for entity, values in alterations.items()
        ),
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response = await cluster.call(request, AlterClientQuotasResponse)
        for entry in response.entries:
            entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
            check(
                entry.error_code,
                entry.error_message or f"the quotas of {entity_text(entity)} are refused",
            )

    await cluster.retry(attempt)
