"""ApiVersions: returns the APIs and versions that a node serves, and the feature levels of the
cluster. It is the first request of most clients."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int16, int32, int64, message, string, struct


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    @struct
    class ApiKey:
        api_key: int = int16("0+")
        min_version: int = int16("0+")
        max_version: int = int16("0+")

    @struct
    class SupportedFeature:
        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    @struct
    class FinalizedFeature:
        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")

    error_code: int = int16("0+")
    api_keys: tuple[ApiKey, ...] = array(ApiKey, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: tuple[SupportedFeature, ...] = array(
        SupportedFeature, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: tuple[FinalizedFeature, ...] = array(
        FinalizedFeature, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
