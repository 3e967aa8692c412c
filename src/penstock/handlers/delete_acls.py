"""DeleteAcls: deletes access control entries.

Behaviour
  The active controller decides. The entries of a request are one batch in the metadata log: all
  are deleted or none. This node sends the response when its own authorizer has applied them.
  Each filter has its own result: the entries that it matches, or INVALID_REQUEST. A request that
  would delete more than 10,000 entries deletes none.
  SECURITY_DISABLED without an authorizer. Needs ALTER on the cluster.

Version notes
  v1 adds pattern types, v2 is flexible, v3 adds the resource type USER.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.controller.acls import acl_of, delete_acls
from penstock.errors import KafkaError
from penstock.handlers.acl_changes import Parts, change_acls
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.node.controller.controller import NodeController


def handle(
    parts: Parts, request: DeleteAclsRequest, context: RequestContext
) -> Awaitable[DeleteAclsResponse]:
    return change_acls(parts, request, context, decide, refused, _is_deleted)


def _is_deleted(
    _request: DeleteAclsRequest, response: DeleteAclsResponse
) -> Callable[[MetadataImage], bool]:
    deleted = [acl_of(acl) for result in response.filter_results for acl in result.matching_acls]
    return lambda image: not any(acl in image.acl_ids for acl in deleted)


def decide(controller: NodeController, request: DeleteAclsRequest) -> Awaitable[DeleteAclsResponse]:
    return controller.decide(delete_acls, request)


def refused(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    result = DeleteAclsResponse.FilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=(result,) * len(request.filters))
