"""SaslAuthenticate: a token of the SASL exchange that SaslHandshake began (KIP-152).

Behaviour
  Returns the server's token. SASL_AUTHENTICATION_FAILED with Kafka's message if the client is
  refused; then the connection is closed. The message does not tell whether a user exists.
  ILLEGAL_SASL_STATE if no authentication is under way.

Version notes
  v1 adds the lifetime of the session, in the response that completes the exchange (KIP-368).
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.errors import ErrorCode
from penstock.handlers.authentication import failure_reason
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.security.sasl.mechanism import SaslFailed


def handle(
    _parts: object, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    authentication = context.connection.authentication
    if authentication is None or authentication.session.is_complete:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        answer = authentication.authenticate(
            context.connection, bytes(request.auth_bytes), context.received
        )
    except SaslFailed as error:
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=error.client_message
        )
        reason = failure_reason(error, authentication.session.mechanism)
        return authentication.fail(response, reason)
    return SaslAuthenticateResponse(auth_bytes=answer.token, session_lifetime_ms=answer.lifetime_ms)
