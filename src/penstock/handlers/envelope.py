"""Envelope: a broker forwards a client's request that only the active controller can execute
(KIP-590).

Behaviour
  The controller executes the embedded request and returns the response in the envelope, encoded in
  the client's version. NOT_CONTROLLER on any other node. INVALID_REQUEST for an API that is not
  forwarded.

Version notes
  One version.

Not implemented
  Principals: there is no authorization yet, so the principal in the envelope is ignored.
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
        header, end = decode_request_header(request.request_data)
        module = _module(header)
        inner: object = decode(
            request_class(header.request_api_key),
            header.request_api_version,
            request.request_data[end:],
        )
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _execute(controller, header, module, inner)


def _module(header: RequestHeader) -> Any:
    served = CONTROLLER_SERVED.get(header.request_api_key)
    if served is None or not served.first <= header.request_api_version <= served.last:
        raise ProtocolError(
            f"API key {header.request_api_key} v{header.request_api_version} is not forwarded"
        )
    module = import_module(served.module)
    if not hasattr(module, "decide"):
        raise ProtocolError(f"{served.module} is not an API that brokers forward")
    return module


async def _execute(
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
