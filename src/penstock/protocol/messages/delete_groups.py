"""DeleteGroups: deletes empty groups with their offsets."""

from __future__ import annotations

from penstock.protocol.schema import array, int16, int32, message, string, struct


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = array(string, "0+")


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    @struct
    class Result:
        group_id: str = string("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    results: tuple[Result, ...] = array(Result, "0+")
