"""Envelope: a broker forwards a client's request that only the active controller can execute
(KIP-590).

Behaviour
  The controller executes the embedded request and returns the response in the envelope, encoded in
  the client's version. NOT_CONTROLLER on any other node. INVALID_REQUEST for an API that is not
  forwarded. With an authorizer the broker needs CLUSTER_ACTION on the cluster, and the controller
  checks the embedded request for the client's principal and address in the envelope.
  PRINCIPAL_DESERIALIZATION_FAILURE for a principal that cannot be decoded. An envelope without a
  principal has a request of the broker itself.

Version notes
  One version.

Not implemented
  -
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.handlers import CONTROLLER_SERVED
from penstock.handlers.context import RequestContext
from penstock.handlers.turns import run
from penstock.node.controller.mutation_quota import STRICT_SINCE, under_quota
from penstock.protocol.apis import request_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    response_header_version,
)
from penstock.protocol.internal.principal import DefaultPrincipalData
from penstock.protocol.internal.versioned import decode_versioned
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from penstock.handlers.authorization.guard import Guard
    from penstock.handlers.delegation_token_requests import TokenRequester
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


class Parts(Protocol):
    metadata: MetadataView
    controller: NodeController


# Runs a decision, or the check of a request that decides on a part of it.
Decide = Callable[[Any], Awaitable[Any]]


def handle(
    parts: Parts, request: EnvelopeRequest, context: RequestContext
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
    try:
        guard = None if context.guard is None else _guard(request, header, context)
        decide: Decide
        if hasattr(module, "decide_for"):
            requester = _requester(request, header, guard, context)
            decide = partial(module.decide_for, controller, requester=requester)
        elif header.request_api_key in STRICT_SINCE and request.request_principal is not None:
            client = _Client(header.client_id, _principal(request.request_principal)[0])
            decide = partial(
                under_quota(
                    module.decide, client, header.request_api_key, header.request_api_version
                ),
                controller,
            )
        else:
            decide = partial(module.decide, controller)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    if guard is not None:
        decide = _guarded(parts, guard, header, decide)
    return _execute(decide, header, module, inner)


class _Client(NamedTuple):
    """The client of a forwarded request that creates or deletes partitions."""

    client_id: str | None
    principal: KafkaPrincipal


def _guard(request: EnvelopeRequest, header: RequestHeader, context: RequestContext) -> Guard:
    """Return the guard of the client. Raises KafkaError."""
    # Imported on first use, so that a node without an authorizer starts quickly.
    from penstock.handlers.authorization.guard import Guard, java_address

    assert context.guard is not None
    principal, host = context.principal, context.guard.host
    if request.request_principal is not None:
        principal = _principal(request.request_principal)[0]
        try:
            host = java_address(request.client_host_address)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a client address has {len(request.client_host_address)} bytes",
            ) from None
    of_client = context._replace(
        api_key=header.request_api_key,
        version=header.request_api_version,
        client_id=header.client_id,
    )
    return Guard(context.guard.authorizer, of_client, principal, host)


def _requester(
    request: EnvelopeRequest, header: RequestHeader, guard: Guard | None, context: RequestContext
) -> TokenRequester:
    """Return the client of a request whose decision depends on it. Raises KafkaError."""
    from penstock.handlers.delegation_token_requests import TokenRequester

    principal, token_authenticated = context.principal, context.token_authenticated
    if request.request_principal is not None:
        principal, token_authenticated = _principal(request.request_principal)
    return TokenRequester(principal, token_authenticated, header.request_api_version, guard)


def _guarded(parts: Parts, guard: Guard, header: RequestHeader, decide: Decide) -> Decide:
    """Return the decision with the check of the embedded request."""
    from penstock.handlers.authorization.calls import Call
    from penstock.handlers.authorization.table import BROKER_CHECKS, entry_of

    check = entry_of(header.request_api_key, BROKER_CHECKS).load()
    call = Call(header.request_api_key, parts.metadata.image, decide)

    async def decide_allowed(inner: Any) -> Any:
        response = run(check(guard, inner, call))
        return await response if inspect.isawaitable(response) else response

    return decide_allowed


def _principal(data: bytes) -> tuple[KafkaPrincipal, bool]:
    """Return the principal of a client, and whether it has a delegation token."""
    try:
        decoded = decode_versioned(DefaultPrincipalData, data)
    except ProtocolError:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            "the principal of a forwarded request cannot be decoded",
        ) from None
    return KafkaPrincipal(decoded.type, decoded.name), decoded.token_authenticated


def _module(header: RequestHeader) -> Any:
    served = CONTROLLER_SERVED.get(header.request_api_key)
    if served is None or not served.first <= header.request_api_version <= served.last:
        raise ProtocolError(
            f"API key {header.request_api_key} v{header.request_api_version} is not forwarded"
        )
    module = import_module(served.module)
    if not hasattr(module, "decide") and not hasattr(module, "decide_for"):
        raise ProtocolError(f"{served.module} is not an API that brokers forward")
    return module


async def _execute(
    decide: Decide, header: RequestHeader, module: Any, request: object
) -> EnvelopeResponse:
    try:
        response = await decide(request)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        response = module.refused(request, error)
    key, version = header.request_api_key, header.request_api_version
    response_header = encode_bytes(
        ResponseHeader(correlation_id=header.correlation_id), response_header_version(key, version)
    )
    return EnvelopeResponse(response_data=response_header + encode_bytes(response, version))
