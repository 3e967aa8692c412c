"""Handlers with the faults of a test: `penstock.start` gets them in place of the usual ones.

Only requests on the clients' listener have faults. Brokers, controllers and the test's own cluster
object use other listeners, so that `fail("Fetch", ...)` does not stop replication.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.handlers.context import Exclusive, RequestContext
from penstock.protocol.apis import find_api
from penstock.server.dispatch import Handler
from penstock.start import LoadHandler
from penstock.testing.faults.board import DELAY, FAIL, REFUSE, ApiFault, FaultBoard
from penstock.testing.faults.error_response import error_response


def with_faults(load: LoadHandler, board: FaultBoard, node_id: int, listener: str) -> LoadHandler:
    """Return a function that loads handlers as `load` does, with the faults of the board."""

    def load_with_faults(api_key: int) -> Handler:
        handler = load(api_key)

        def handle(parts: Any, request: Any, context: RequestContext) -> object:
            apis = board.faults.apis
            if not apis or context.listener_name != listener:
                return handler(parts, request, context)
            for fault in apis:
                if (
                    fault.api_key == context.api_key
                    and fault.broker in (None, node_id)
                    and board.use(fault)
                ):
                    return _apply(fault, handler, parts, request, context)
            return handler(parts, request, context)

        return handle

    return load_with_faults


def _apply(
    fault: ApiFault, handler: Handler, parts: Any, request: Any, context: RequestContext
) -> object:
    name = find_api(context.api_key).name
    if fault.kind == REFUSE:
        raise ProtocolError(f"a test closes the connection before it handles {name}")
    if fault.kind == FAIL:
        if getattr(request, "acks", None) == 0:
            return None  # a Produce request that gets no response
        response = error_response(request, context.version, ErrorCode(fault.error_code))
        if response is None:
            raise ProtocolError(
                f"a test fails {name}, and the response to this request has no place for an error"
            )
        return response
    response = handler(parts, request, context)
    if fault.kind != DELAY:
        return _lost(response, name)
    if response is None:
        return None
    if isinstance(response, Exclusive):
        return Exclusive(_late(response.response, fault.delay_ms / 1000))
    return _late(response, fault.delay_ms / 1000)


async def _late(response: object, delay_s: float) -> object:
    result = await _result(response)
    await asyncio.sleep(delay_s)
    return result


async def _lost(response: object, name: str) -> object:
    await _result(response)
    raise KafkaError(
        ErrorCode.NETWORK_EXCEPTION, f"a test closes the connection after it handles {name}"
    )


async def _result(response: object) -> object:
    return await cast(Awaitable[object], response) if hasattr(response, "__await__") else response
