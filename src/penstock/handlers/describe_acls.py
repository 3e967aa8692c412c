"""DescribeAcls: the access control entries that match a filter, by resource.

Behaviour
  The response has this node's metadata. A filter without a name, principal or host, or with ANY,
  matches all. The pattern type MATCH finds all entries that apply to a name: its own, those of its
  prefixes, and the wildcard. INVALID_REQUEST for numbers that are not known, SECURITY_DISABLED
  without an authorizer. Needs DESCRIBE on the cluster.

Version notes
  v1 adds pattern types, v2 is flexible, v3 adds the resource type USER.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import Exclusive, RequestContext
from penstock.limits import DESCRIBED_ACLS_A_TURN
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.protocol.schema import EncodedArray
from penstock.security.acls import Acl, AclFilter, Resource

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.security.authorizer import Authorizer


class Parts(Protocol):
    metadata: MetadataView
    authorizer: Authorizer | None


def handle(
    parts: Parts, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse | Exclusive[DescribeAclsResponse]:
    if parts.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )
    acl_filter = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    unknown = acl_filter.unknown_part()
    if unknown is not None:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"Unknown {unknown}."
        )
    return Exclusive(_describe(parts, acl_filter, context.version))


async def _describe(parts: Parts, acl_filter: AclFilter, version: int) -> DescribeAclsResponse:
    """A cluster may have 100,000 entries, and a resource all of them: they are compared and encoded
    in turns of the event loop."""
    resources: dict[Resource, list[bytes]] = {}
    for count, acl in enumerate(parts.metadata.image.acls.values(), 1):
        if acl_filter.matches(acl):
            entry = encode_struct(DescribeAclsResponse, _entry(acl), version)
            resources.setdefault(acl.resource, []).append(entry)
        if count % DESCRIBED_ACLS_A_TURN == 0:
            await asyncio.sleep(0)
    encoded: list[bytes] = []
    for count, (resource, acls) in enumerate(resources.items(), 1):
        described = DescribeAclsResponse.Resource(
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            acls=EncodedArray(len(acls), b"".join(acls)),  # type: ignore[arg-type]
        )
        encoded.append(encode_struct(DescribeAclsResponse, described, version))
        if count % DESCRIBED_ACLS_A_TURN == 0:
            await asyncio.sleep(0)
    return DescribeAclsResponse(
        error_message=None,
        resources=EncodedArray(len(encoded), b"".join(encoded)),  # type: ignore[arg-type]
    )


def _entry(acl: Acl) -> DescribeAclsResponse.Resource.Acl:
    return DescribeAclsResponse.Resource.Acl(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
