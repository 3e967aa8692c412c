"""CreateAcls: creates access control entries.

Behaviour
  The active controller decides. The entries of a request are one batch in the metadata log: all
  are created or none. This node sends the response when its own authorizer has applied them.
  An entry that exists is no error. INVALID_REQUEST for an entry that is not valid: each entry of a
  request has its own result. POLICY_VIOLATION for more than 10,000 entries.
  SECURITY_DISABLED without an authorizer. Needs ALTER on the cluster.

Version notes
  v1 adds pattern types, v2 is flexible, v3 adds the resource type USER.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.controller.acls import acl_of, create_acls
from penstock.errors import KafkaError
from penstock.handlers.acl_changes import Parts, change_acls
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.node.controller.controller import NodeController


def handle(
    parts: Parts, request: CreateAclsRequest, context: RequestContext
) -> Awaitable[CreateAclsResponse]:
    return change_acls(parts, request, context, decide, refused, _is_created)


def _is_created(
    request: CreateAclsRequest, response: CreateAclsResponse
) -> Callable[[MetadataImage], bool]:
    created = [
        acl_of(creation)
        for creation, result in zip(request.creations, response.results, strict=True)
        if not result.error_code
    ]
    return lambda image: all(acl in image.acl_ids for acl in created)


def decide(controller: NodeController, request: CreateAclsRequest) -> Awaitable[CreateAclsResponse]:
    return controller.decide(create_acls, request)


def refused(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    result = CreateAclsResponse.Result(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=(result,) * len(request.creations))
