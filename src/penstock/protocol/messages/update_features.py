"""UpdateFeatures: raises or lowers the finalized level of features."""

from __future__ import annotations

from penstock.protocol.schema import array, boolean, int8, int16, int32, message, string, struct


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    @struct
    class FeatureUpdate:
        feature: str = string("0+")
        max_version_level: int = int16("0+")
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32("0+", default=60000)
    feature_updates: tuple[FeatureUpdate, ...] = array(FeatureUpdate, "0+")
    validate_only: bool = boolean("1+")


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    @struct
    class Result:
        feature: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: tuple[Result, ...] = array(Result, "0-1", ignorable=True)
