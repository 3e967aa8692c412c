"""ApiVersions: the APIs that this node serves, and the features of its cluster.

Behaviour
  The APIs are those of the listener's table; InitProducerId v6 is among them if two-phase commit is
  enabled. Supported features are those of this broker's registration. Finalized features are the
  cluster's, as of the metadata offset in the epoch; a feature at level 0 is off and left out. The
  listener of a controller supports the features of this release. kraft.version is the quorum's
  (KIP-853).

Version notes
  v3 adds the client's software name and version (INVALID_REQUEST if malformed) and features. Up to
  v3, supported features with a minimum of 0 are left out: clients of that time fail on them
  (KAFKA-17011). The server answers a version that is not served as v0, with UNSUPPORTED_VERSION and
  the list of APIs (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.config.transaction_settings import TWO_PHASE_COMMIT_ENABLE
from penstock.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from penstock.errors import ErrorCode
from penstock.handlers import CONTROLLER_SERVED, SERVED, TWO_PHASE_COMMIT_SERVED, Served
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.metadata.image import SupportedFeature as BrokerFeature
    from penstock.node.metadata import MetadataView
    from penstock.node.quorum.quorum import Quorum

ApiKey = ApiVersionsResponse.ApiKey
SupportedFeature = ApiVersionsResponse.SupportedFeature
FinalizedFeature = ApiVersionsResponse.FinalizedFeature

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _api_keys(table: Mapping[int, Served]) -> tuple[ApiKey, ...]:
    return tuple(
        ApiKey(api_key=key, min_version=served.advertised_first, max_version=served.last)
        for key, served in sorted(table.items())
    )


_BROKER_APIS, _CONTROLLER_APIS = _api_keys(SERVED), _api_keys(CONTROLLER_SERVED)
_TWO_PHASE_COMMIT_APIS = _api_keys(TWO_PHASE_COMMIT_SERVED)


class Parts(Protocol):
    config: NodeConfig
    node_id: int
    metadata: MetadataView
    quorum: Quorum


def handle(
    parts: Parts, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    if context.version >= 3 and not _is_well_formed(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image, kraft_version = parts.metadata.image, parts.quorum.kraft_version
    levels = sorted({**image.features, KRAFT_VERSION: kraft_version}.items())
    return ApiVersionsResponse(
        api_keys=_advertised(parts, context),
        supported_features=_supported(
            parts,
            least_minimum=0 if context.version >= 4 else 1,
            is_controller=context.listener_name in parts.config.controller_listener_names,
        ),
        finalized_features_epoch=parts.metadata.image.offset,
        finalized_features=tuple(
            FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels
            if level > 0
        ),
    )


def _advertised(parts: Parts, context: RequestContext) -> tuple[ApiKey, ...]:
    if context.listener_name in parts.config.controller_listener_names:
        return _CONTROLLER_APIS
    if parts.config[TWO_PHASE_COMMIT_ENABLE]:
        return _TWO_PHASE_COMMIT_APIS
    return _BROKER_APIS


def _is_well_formed(request: ApiVersionsRequest) -> bool:
    return all(
        _SOFTWARE_NAME.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )


def _supported(
    parts: Parts, *, least_minimum: int, is_controller: bool
) -> tuple[SupportedFeature, ...]:
    registered = parts.metadata.image.brokers.get(parts.node_id)
    features: tuple[BrokerFeature, ...] = registered.features if registered is not None else ()
    if is_controller:
        features = SUPPORTED_FEATURES
    return tuple(
        SupportedFeature(name=feature.name, min_version=feature.first, max_version=feature.last)
        for feature in features
        if feature.first >= least_minimum
    )
