"""DescribeAcls: lists access control entries that match a filter."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = int8("1+")
    resource_name_filter: str | None = string("1+", nullable="1+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("1+", nullable="1+")
    host_filter: str | None = string("1+", nullable="1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    @struct
    class Resource:
        @struct
        class Acl:
            principal: str = string("1+")
            host: str = string("1+")
            operation: int = int8("1+")
            permission_type: int = int8("1+")

        resource_type: int = int8("1+")
        resource_name: str = string("1+")
        pattern_type: int = int8("1+", default=3)
        acls: tuple[Acl, ...] = array(Acl, "1+", may_be_encoded=True)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+")
    resources: tuple[Resource, ...] = array(Resource, "1+", may_be_encoded=True)
