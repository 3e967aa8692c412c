"""SaslHandshake: a client names the SASL mechanism that it authenticates with (KIP-43).

Behaviour
  Begins an authentication. UNSUPPORTED_SASL_MECHANISM with the mechanisms of the listener for
  another one; then the connection is closed. On an authenticated connection it begins a
  re-authentication (KIP-368). ILLEGAL_SASL_STATE on a listener without SASL, and if a
  re-authentication comes within a second of the last.

Version notes
  After v0 the tokens follow without Kafka's headers, after v1 in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.errors import ErrorCode
from penstock.handlers.audit_log import quoted
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    _parts: object, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    authentication = context.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    session = authentication.session
    code = session.handshake(request.mechanism, context.version, context.received)
    response = SaslHandshakeResponse(error_code=code, mechanisms=session.mechanism_names)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return authentication.fail(
            response, f"the client asks for mechanism {quoted(request.mechanism)}"
        )
    return response
