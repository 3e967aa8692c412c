"""Timers behave alike on asyncio and on uvloop, whose handles of near deadlines have no `when`."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

import penstock
from penstock.client.connection import Connection, open_connection
from penstock.errors import ErrorCode
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.world.real import real_world
from tests.log.making import batch
from tests.node.replicas import CONFIG, LAG_S, TOPIC, TOPIC_ID, Broker, Controller

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def produce(timeout_ms: int) -> ProduceRequest:
    data = ProduceRequest.TopicData.PartitionData(index=0, records=batch("a"))
    topic = ProduceRequest.TopicData(name=TOPIC, topic_id=TOPIC_ID, partition_data=(data,))
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=(topic,))


@pytest.mark.parametrize("timeout_ms", [-100, 0, 1])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_acks_all_without_time_to_wait_is_answered_with_a_timeout(
    tmp_path: Path, new_loop: NewLoop, timeout_ms: int
) -> None:
    async def main() -> None:
        controller = Controller(replicas=2)
        for number in (1, 2):
            controller.register(number)
        world, path = real_world(), str(tmp_path / "data")
        broker = Broker(controller, world, 1, "127.0.0.1", 0, path, CONFIG, LAG_S)
        await broker.start()
        try:
            timeouts = {"connect_timeout_s": 30.0, "request_timeout_s": 30.0}
            connections: list[Connection] = [
                await open_connection(world, "127.0.0.1", broker.port, client_id="t", **timeouts)
                for _ in range(2)
            ]
            # Several on each connection: the later ones find the timer of the first one.
            responses = await asyncio.gather(
                *(
                    connection.call(produce(timeout_ms), ProduceResponse, timeout_s=30.0)
                    for _ in range(4)
                    for connection in connections
                )
            )
            assert [
                response.responses[0].partition_responses[0].error_code for response in responses
            ] == [ErrorCode.REQUEST_TIMED_OUT] * 8
            for connection in connections:
                connection.close()
        finally:
            await broker.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_no_timer_handle_is_asked_for_its_deadline() -> None:
    """uvloop's handles of near deadlines have no `when`: callers keep deadlines themselves."""
    source = Path(penstock.__file__).parent
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    calls = [
        (str(path.relative_to(source)), node.lineno)
        for path, text in texts.items()
        if ".when()" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "when"
        and not node.args
    ]
    assert calls == []
