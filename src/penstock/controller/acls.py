"""CreateAcls and DeleteAcls: access control entries in the metadata log (Kafka's
AclControlManager). PURE."""

from __future__ import annotations

from uuid import UUID

from penstock.config.authorizer_settings import AUTHORIZER_CLASS_NAME, STANDARD_AUTHORIZER
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import (
    MAX_ACL_COMPARISONS,
    MAX_ACL_FIELD_CHARACTERS,
    MAX_ACLS_PER_REQUEST,
)
from penstock.metadata.acls_delta import acl_record
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.metadata_security import RemoveAccessControlEntryRecord
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    is_known,
    operation_name,
    pattern_type_name,
    permission_name,
    resource_type_name,
)

CreateResult = CreateAclsResponse.Result
FilterResult = DeleteAclsResponse.FilterResult
MatchingAcl = FilterResult.MatchingAcl


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, context: ControllerContext
) -> ControllerResult[CreateAclsResponse]:
    """Create each valid entry that does not exist. An entry that exists is no error."""
    _check_enabled(context)
    created: dict[Acl, UUID] = {}
    results: list[CreateResult] = []
    for creation in request.creations:
        acl = acl_of(creation)
        reason = refusal_of(acl)
        if reason is not None:
            results.append(CreateResult(error_code=ErrorCode.INVALID_REQUEST, error_message=reason))
            continue
        if acl not in image.acl_ids and acl not in created:
            created[acl] = _new_id(image, context)
        results.append(CreateResult(error_message=None))
    if len(created) > MAX_ACLS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation: a request may create "
            f"{MAX_ACLS_PER_REQUEST} acls.",
        )
    records = tuple(acl_record(acl_id, acl) for acl, acl_id in created.items())
    return ControllerResult(records, CreateAclsResponse(results=tuple(results)))


def delete_acls(
    image: MetadataImage,
    request: DeleteAclsRequest,
    context: ControllerContext,
) -> ControllerResult[DeleteAclsResponse]:
    """Delete the entries that match a filter. If there are too many, none is deleted."""
    _check_enabled(context)
    removed: dict[UUID, None] = {}
    results: list[FilterResult] = []
    comparisons = 0
    for requested in request.filters:
        acl_filter = filter_of(requested)
        unknown = acl_filter.unknown_part()
        if unknown is not None:
            results.append(
                FilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message=f"Unknown {unknown}."
                )
            )
            continue
        exact = exact_acl(acl_filter)
        # If entries occur twice, all of them must be found.
        if exact is None or len(image.acl_ids) != len(image.acls):
            comparisons += len(image.acls)
            if comparisons > MAX_ACL_COMPARISONS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The request has {len(request.filters)} filters, and the cluster has "
                    f"{len(image.acls)} acls. Send the filters in several requests.",
                )
            found = [(each, acl) for each, acl in image.acls.items() if acl_filter.matches(acl)]
        else:
            acl_id = image.acl_ids.get(exact)
            found = [] if acl_id is None else [(acl_id, exact)]
        removed.update(dict.fromkeys(acl_id for acl_id, _acl in found))
        if len(removed) > MAX_ACLS_PER_REQUEST:
            # Kafka refuses all: that only a part is deleted can easily be missed.
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {MAX_ACLS_PER_REQUEST} acls in a single delete "
                "operation.",
            )
        results.append(
            FilterResult(
                error_message=None, matching_acls=tuple(_matching(acl) for _id, acl in found)
            )
        )
    records = tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed)
    return ControllerResult(records, DeleteAclsResponse(filter_results=tuple(results)))


def _check_enabled(context: ControllerContext) -> None:
    if not context.config[AUTHORIZER_CLASS_NAME]:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            f"No Authorizer is configured. Set {AUTHORIZER_CLASS_NAME.name}={STANDARD_AUTHORIZER} "
            "on all nodes.",
        )


def filter_of(requested: DeleteAclsRequest.Filter) -> AclFilter:
    return AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def exact_acl(acl_filter: AclFilter) -> Acl | None:
    """Return the only entry that a filter can match, or None."""
    name, principal, host = acl_filter.resource_name, acl_filter.principal, acl_filter.host
    if (
        name is None
        or principal is None
        or host is None
        or acl_filter.resource_type == ResourceType.ANY
        or acl_filter.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl_filter.operation == AclOperation.ANY
        or acl_filter.permission == PermissionType.ANY
    ):
        return None
    return Acl(
        acl_filter.resource_type,
        name,
        acl_filter.pattern_type,
        principal,
        host,
        acl_filter.operation,
        acl_filter.permission,
    )


def refusal_of(acl: Acl) -> str | None:
    """Return the reason why an entry is invalid, in Kafka's words, or None."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if acl.resource_type == ResourceType.ANY or not is_known(ResourceType, acl.resource_type):
        return f"Invalid resourceType {resource_type_name(acl.resource_type)}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern_type_name(acl.pattern_type)}"
    if acl.operation == AclOperation.ANY or not is_known(AclOperation, acl.operation):
        return f"Invalid operation {operation_name(acl.operation)}"
    if acl.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        return f"Invalid permissionType {permission_name(acl.permission)}"
    if not acl.resource_name:
        return "Resource name should not be empty"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal[:MAX_ACL_FIELD_CHARACTERS]}` (no "
            "colon is present separating the principal type from the principal name)"
        )
    if max(map(len, (acl.resource_name, acl.principal, acl.host))) > MAX_ACL_FIELD_CHARACTERS:
        return (
            "The resource name, the principal and the host must have at most "
            f"{MAX_ACL_FIELD_CHARACTERS} characters each"
        )
    return None


def _new_id(image: MetadataImage, context: ControllerContext) -> UUID:
    while (acl_id := context.new_uuid()) in image.acls:
        pass
    return acl_id


def acl_of(entry: CreateAclsRequest.Creation | MatchingAcl) -> Acl:
    return Acl(
        entry.resource_type,
        entry.resource_name,
        entry.resource_pattern_type
        if isinstance(entry, CreateAclsRequest.Creation)
        else entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def _matching(acl: Acl) -> MatchingAcl:
    return MatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
