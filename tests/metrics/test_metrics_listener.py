"""The HTTP listener serves one page per request, and a hostile client gets nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from penstock import limits
from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.config.quorum import Address
from penstock.metrics.measure import gauge
from penstock.metrics.samples import Samples, Source
from penstock.metrics.turn import Turn
from penstock.server.metrics import listener as listener_module
from penstock.server.metrics.listener import MetricsListener
from penstock.world import World
from penstock.world.real import run
from tests.metrics.scrape import get, parsed, request

ANSWER = gauge("answer", "The answer.")
PARTITIONS = gauge("asked", "1 if partitions were asked for.")


async def answer(samples: Samples, _turn: Turn) -> None:
    samples.add(ANSWER, 42)
    samples.add(PARTITIONS, int(samples.per_partition))


def config(**settings: str) -> NodeConfig:
    lines = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/nowhere",
        **{f"penstock.metrics.{name.replace('_', '.')}": text for name, text in settings.items()},
    }
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    return read_node_config(text.encode(), "server.properties")


@contextlib.asynccontextmanager
async def listening(
    world: World, *sources: Source, settings: NodeConfig | None = None
) -> AsyncIterator[MetricsListener]:
    listener = MetricsListener(
        world, settings or config(), Address("127.0.0.1", 0), sources or (answer,)
    )
    await listener.start()
    try:
        yield listener
    finally:
        listener.stop()


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def bounded(world: World) -> None:
        async with asyncio.timeout(30):
            await scenario(world)

    run(bounded)


@pytest.mark.parametrize("target", ["/metrics", "/", "/metrics?name=value"])
def test_a_get_returns_the_page(target: str) -> None:
    async def scenario(world: World) -> None:
        async with listening(world) as listener:
            status, body = await get(listener.port, target)
            assert status == 200
            assert parsed(body)["penstock_answer", ()] == 42

    play(scenario)


@pytest.mark.parametrize(
    ("setting", "query", "expected"),
    [
        ("false", "", 0),
        ("true", "", 1),
        ("false", "?partitions=1", 1),
        ("true", "?partitions=0", 0),
        ("true", "?partitions=false&x", 0),
    ],
)
def test_series_of_partitions_are_there_when_asked_for(
    setting: str, query: str, expected: int
) -> None:
    async def scenario(world: World) -> None:
        settings = config(per_partition=setting)
        async with listening(world, settings=settings) as listener:
            _status, body = await get(listener.port, f"/metrics{query}")
            assert parsed(body)["penstock_asked", ()] == expected

    play(scenario)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Authorization: Bearer open sesame", 200),
        ("authorization: bearer open sesame", 200),
        ("Authorization: Bearer open", 401),
        ("Authorization: Bearer ", 401),
        ("Authorization: Basic open sesame", 401),
        ("Authorization: open sesame", 401),
        ("Authorization: Bearer \u00fcpen sesame", 401),
        ("X-Other: 1", 401),
    ],
)
def test_a_token_is_required_if_one_is_set(header: str, status: int) -> None:
    async def scenario(world: World) -> None:
        async with listening(world, settings=config(token="open sesame")) as listener:
            found, body = await get(listener.port, "/metrics", header)
            assert found == status
            assert ("penstock_answer" in body) == (status == 200)

    play(scenario)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2_000 + b"\r\n", 431),
        (b"G" * 100_000, 431),
    ],
)
def test_other_requests_are_refused(data: bytes, status: int) -> None:
    async def scenario(world: World) -> None:
        async with listening(world) as listener:
            # A peer whose bytes were not all read may get a reset after the response.
            with contextlib.suppress(ConnectionError):
                response = await request(listener.port, data)
                assert int(response.split(b" ")[1]) == status
            assert (await get(listener.port))[0] == 200

    play(scenario)


def test_a_head_has_no_body() -> None:
    async def scenario(world: World) -> None:
        async with listening(world) as listener:
            response = await request(listener.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert response.startswith(b"HTTP/1.1 200 ")
            assert response.endswith(b"\r\n\r\n")

    play(scenario)


def test_a_request_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "SCRAPE_HEAD_S", 0.05)

    async def scenario(world: World) -> None:
        async with listening(world) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    play(scenario)


def test_a_peer_that_does_not_read_its_page_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "SCRAPE_SEND_S", 0.1)

    async def large(samples: Samples, _turn: Turn) -> None:
        samples.add_text(b"# " + b"x" * 50_000_000 + b"\n")

    async def scenario(world: World) -> None:
        async with listening(world, large) as listener:
            _reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            while not listener._scraping:
                await asyncio.sleep(0.001)
            while listener._scraping or listener._connections:
                await asyncio.sleep(0.001)
            writer.close()

    play(scenario)


async def silent(listener: MetricsListener, count: int) -> list[asyncio.StreamWriter]:
    """Return connections that send nothing, when the listener has accepted them."""
    accepted, admit, writers = [], listener.admit, []

    def counted(connection: Any) -> bool:
        accepted.append(connection)
        return admit(connection)

    setattr(listener, "admit", counted)  # noqa: B010
    for _ in range(count):
        _reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writers.append(writer)
    while len(accepted) < count:
        await asyncio.sleep(0.001)
    return writers


def test_silent_connections_do_not_keep_a_scrape_out() -> None:
    """Also if more of them come while the request is on its way."""

    async def scenario(world: World) -> None:
        async with listening(world, settings=config(token="secret")) as listener:
            writers = await silent(listener, limits.MAX_SCRAPE_CONNECTIONS + 8)
            assert len(listener._connections) == limits.MAX_SCRAPE_CONNECTIONS
            header = "Authorization: Bearer secret"
            assert (await get(listener.port, "/metrics", header))[0] == 200
            for writer in writers:
                writer.close()
            while listener._connections:
                await asyncio.sleep(0.001)

    play(scenario)


def test_the_connections_of_one_address_do_not_push_out_those_of_others() -> None:
    """The oldest of the address that has the most must go."""

    class Transport:
        def __init__(self, address: str) -> None:
            self.address, self.aborted = address, False

        def get_extra_info(self, _name: str) -> tuple[str, int]:
            return (self.address, 1)

        def abort(self) -> None:
            self.aborted = True

        def is_closing(self) -> bool:
            return self.aborted

    async def scenario(world: World) -> None:
        async with listening(world) as listener:

            def connect(address: str) -> Transport:
                transport = Transport(address)
                connection = listener_module._Connection(listener)
                connection.connection_made(cast("asyncio.BaseTransport", transport))
                return transport

            good = connect("10.0.0.1")
            bad = [connect("10.0.0.2") for _ in range(3 * limits.MAX_SCRAPE_CONNECTIONS)]
            assert not good.aborted
            left = [transport for transport in bad if not transport.aborted]
            assert left == bad[-limits.MAX_SCRAPE_CONNECTIONS + 1 :]

    play(scenario)


def answer_after(may_end: asyncio.Event) -> Source:
    """Return a source of samples that waits for the event."""

    async def collect(samples: Samples, turn: Turn) -> None:
        await may_end.wait()
        await answer(samples, turn)

    return collect


def test_connections_that_are_being_answered_are_not_given_up() -> None:
    may_end = asyncio.Event()

    async def scenario(world: World) -> None:
        async with listening(world, answer_after(may_end)) as listener:
            first = asyncio.create_task(get(listener.port))
            while not listener._scraping:
                await asyncio.sleep(0.001)
            writers = await silent(listener, 2 * limits.MAX_SCRAPE_CONNECTIONS)
            may_end.set()
            assert (await first)[0] == 200
            for writer in writers:
                writer.close()

    play(scenario)


def test_a_connection_is_refused_if_all_others_are_being_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_module, "MAX_SCRAPE_CONNECTIONS", 2)
    may_end = asyncio.Event()

    async def scenario(world: World) -> None:
        async with listening(world, answer_after(may_end)) as listener:
            first = [asyncio.create_task(get(listener.port)) for _ in range(2)]
            while len(listener._scraping) < 2:
                await asyncio.sleep(0.001)
            with contextlib.suppress(ConnectionError):
                assert await request(listener.port, b"GET / HTTP/1.1\r\n\r\n") == b""
            may_end.set()
            assert [status for status, _body in await asyncio.gather(*first)] == [200, 200]

    play(scenario)


def test_scrapes_beyond_the_limit_are_refused_and_the_others_are_answered() -> None:
    may_end = asyncio.Event()

    async def scenario(world: World) -> None:
        async with listening(world, answer_after(may_end)) as listener:
            first = [asyncio.create_task(get(listener.port)) for _ in range(limits.MAX_SCRAPES)]
            while len(listener._scraping) < limits.MAX_SCRAPES:
                await asyncio.sleep(0.001)
            assert (await get(listener.port))[0] == 503
            may_end.set()
            assert [status for status, _body in await asyncio.gather(*first)] == [200] * 4

    play(scenario)


def test_a_client_that_disconnects_ends_its_scrape() -> None:
    ended = asyncio.Event()

    async def endless(_samples: Samples, _turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def scenario(world: World) -> None:
        async with listening(world, endless) as listener:
            _reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            while not listener._scraping:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            await ended.wait()
            assert not listener._scraping

    play(scenario)


def test_a_source_that_fails_does_not_end_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_samples: Samples, _turn: Turn) -> None:
        raise ValueError("broken")

    async def scenario(world: World) -> None:
        async with listening(world, broken) as listener:
            assert (await get(listener.port))[0] == 500
            assert (await get(listener.port))[0] == 500

    play(scenario)
    assert "cannot collect the metrics" in caplog.text


def test_an_address_in_use_is_refused_with_advice() -> None:
    async def scenario(world: World) -> None:
        async with listening(world) as first:
            second = MetricsListener(world, config(), Address("127.0.0.1", first.port), (answer,))
            with pytest.raises(OSError, match="Choose another address") as refused:
                await second.start()
            assert refused.value.errno == errno.EADDRINUSE

    play(scenario)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:9404", Address("127.0.0.1", 9404)),
        ("HTTP://localhost:0/", Address("localhost", 0)),
        ("https://127.0.0.1:9404", Address("127.0.0.1", 9404)),
        ("[::1]:9404", Address("::1", 9404)),
        (":9404", Address("", 9404)),
        ("", None),
    ],
)
def test_the_setting_names_an_address(text: str, address: Address | None) -> None:
    assert config(listener=text).metrics_listener == address


@pytest.mark.parametrize(
    "text", ["9404", "ftp://host:1", "http://host", "http://host:99999", "a b:1"]
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"http://host:port|is not a port"):
        config(listener=text)
