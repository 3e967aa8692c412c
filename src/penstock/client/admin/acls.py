"""Access control entries: describe, create and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.security.acls import Acl, AclFilter


async def describe_acls(cluster: Cluster, acl_filter: AclFilter) -> list[Acl]:
    """Return the entries that match a filter."""
    request = DescribeAclsRequest(
        resource_type_filter=acl_filter.resource_type,
        resource_name_filter=acl_filter.resource_name,
        pattern_type_filter=acl_filter.pattern_type,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation,
        permission_type=acl_filter.permission,
    )

    async def attempt() -> list[Acl]:
        response = await cluster.call(request, DescribeAclsResponse)
        check(response.error_code, response.error_message or "the entries cannot be described")
        return [
            Acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    return await cluster.retry(attempt)


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create entries. Raises the error of the first one that is refused."""
    request = CreateAclsRequest(
        creations=tuple(
            CreateAclsRequest.Creation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        )
    )

    async def attempt() -> None:
        response = await cluster.call(request, CreateAclsResponse)
        for acl, result in zip(acls, response.results, strict=True):
            check(result.error_code, result.error_message or f"the entry {acl} is refused")

    await cluster.retry(attempt)


async def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """Delete the entries that match one of the filters, and return them."""
    request = DeleteAclsRequest(
        filters=tuple(
            DeleteAclsRequest.Filter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource_name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        )
    )

    async def attempt() -> list[Acl]:
        response = await cluster.call(request, DeleteAclsResponse)
        deleted: dict[Acl, None] = {}
        for result in response.filter_results:
            check(result.error_code, result.error_message or "the entries cannot be deleted")
            for acl in result.matching_acls:
                deleted[
                    Acl(
                        acl.resource_type,
                        acl.resource_name,
                        acl.pattern_type,
                        acl.principal,
                        acl.host,
                        acl.operation,
                        acl.permission_type,
                    )
                ] = None
        return list(deleted)

    return await cluster.retry(attempt)
