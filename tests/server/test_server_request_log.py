"""penstock.request logs requests, penstock.audit logs what clients change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.limits import LOGGED_NAMES
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.server.request_log import audited, log_request

Topic = CreateTopicsRequest.Topic
Result = CreateTopicsResponse.Topic


def context(api_key: int) -> RequestContext:
    connection = ConnectionHandle(opened=0.0)
    return RequestContext(
        api_key, 1, 42, "shop", "PLAINTEXT", "127.0.0.1", 9092, "10.0.0.7:5000", 0.0, connection
    )


def audit(request: Any, api_key: int, response: Any) -> object:
    def handle(_parts: Any, _request: Any, _context: RequestContext) -> object:
        return response

    return audited(handle)(None, request, context(api_key))


def test_a_change_and_its_errors_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=(Topic(name="a"), Topic(name="b")))
    response = CreateTopicsResponse(
        topics=(
            Result(name="a"),
            Result(name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        )
    )

    async def main() -> None:
        async def later() -> CreateTopicsResponse:
            return response

        result = audit(request, 19, later())
        assert isinstance(result, Awaitable)
        assert await result is response

    with caplog.at_level(logging.INFO, "penstock.audit"):
        asyncio.run(main())
    assert caplog.messages == [
        "CreateTopics v1 of client 'shop' at 10.0.0.7:5000 on PLAINTEXT: a, b: TOPIC_ALREADY_EXISTS"
    ]


def test_values_of_configs_are_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name="ssl.key.password", config_operation=0, value="secret")
    request = IncrementalAlterConfigsRequest(
        resources=(resource(resource_type=4, resource_name="1", configs=(config,)),)
    )
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(request, 44, IncrementalAlterConfigsResponse())
    (line,) = caplog.messages
    assert line.endswith(": 1, ssl.key.password: done")
    assert "secret" not in line


def test_a_long_request_has_a_short_line(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=tuple(Topic(name=f"t{n}") for n in range(100_000)))
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(request, 19, CreateTopicsResponse())
    (line,) = caplog.messages
    assert line.endswith(f", t{LOGGED_NAMES - 1}…: done")


def test_content_is_logged_at_trace(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=(Topic(name="a"),))
    with caplog.at_level(logging.DEBUG, "penstock.request"):
        log_request(request, context(19), 120)
    line = "CreateTopics v1 of client 'shop' at 10.0.0.7:5000 on PLAINTEXT, 120 bytes, "
    assert caplog.messages == [f"{line}correlation id 42"]
    with caplog.at_level(5, "penstock.request"):
        log_request(request, context(19), 120)
    assert "name='a'" in caplog.messages[-1]
