"""DeleteAcls: deletes access control entries that match filters."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    @struct
    class Filter:
        resource_type_filter: int = int8("1+")
        resource_name_filter: str | None = string("1+", nullable="1+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string("1+", nullable="1+")
        host_filter: str | None = string("1+", nullable="1+")
        operation: int = int8("1+")
        permission_type: int = int8("1+")

    filters: tuple[Filter, ...] = array(Filter, "1+")


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    @struct
    class FilterResult:
        @struct
        class MatchingAcl:
            error_code: int = int16("1+")
            error_message: str | None = string("1+", nullable="1+")
            resource_type: int = int8("1+")
            resource_name: str = string("1+")
            pattern_type: int = int8("1+", default=3)
            principal: str = string("1+")
            host: str = string("1+")
            operation: int = int8("1+")
            permission_type: int = int8("1+")

        error_code: int = int16("1+")
        error_message: str | None = string("1+", nullable="1+")
        matching_acls: tuple[MatchingAcl, ...] = array(MatchingAcl, "1+")

    throttle_time_ms: int = int32("1+")
    filter_results: tuple[FilterResult, ...] = array(FilterResult, "1+")
