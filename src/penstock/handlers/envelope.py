"""Envelope: a broker forwards what a client asked of it and only the active controller can decide
(KIP-590).

Behaviour
  The request within is decided here; its response travels back in the envelope, encoded for the
  client. NOT_CONTROLLER on any other node. APIs that are not the controller's are refused with
  INVALID_REQUEST.

Version notes
  One version.

Not implemented
  Principals: everyone may do everything so far, so that the one in the envelope is not looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.handlers import CONTROLLER_SERVED
from penstock.handlers.context import RequestContext
from penstock.protocol.apis import request_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    response_header_version,
)
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controller: NodeController


def handle(
    parts: Parts, request: EnvelopeRequest, _context: RequestContext
) -> EnvelopeResponse | Awaitable[EnvelopeResponse]:
    controller = parts.controller
    if not controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        header, at = decode_request_header(request.request_data)
        module = _module(header)
        inner: object = decode(
            request_class(header.request_api_key),
            header.request_api_version,
            request.request_data[at:],
        )
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _decided(controller, header, module, inner)


def _module(header: RequestHeader) -> Any:
    served = CONTROLLER_SERVED.get(header.request_api_key)
    if served is None or not served.first <= header.request_api_version <= served.last:
        raise ProtocolError(
            f"API key {header.request_api_key} v{header.request_api_version} cannot be forwarded"
        )
    module = import_module(served.module)
    if not hasattr(module, "decide"):
        raise ProtocolError(f"{served.module} is not decided by the controller for others")
    return module


async def _decided(
    controller: NodeController, header: RequestHeader, module: Any, request: object
) -> EnvelopeResponse:
    try:
        response = await module.decide(controller, request)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        response = module.refused(request, error)
    key, version = header.request_api_key, header.request_api_version
    response_header = encode_bytes(
        ResponseHeader(correlation_id=header.correlation_id), response_header_version(key, version)
    )
    return EnvelopeResponse(response_data=response_header + encode_bytes(response, version))
