"""What doctor reads from the page of metrics of a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.doctor.gather import Request, gather
from penstock.cli.doctor.pages import (
    NodePage,
    NoPage,
    local_addresses,
    parse_page,
    read_page,
)
from penstock.health.examine import examine
from penstock.health.observations import Flushes
from penstock.world import World
from penstock.world.real import run
from tests.e2e.penstock_process import free_port

PAGE = """\
# HELP penstock_node_info 1, with the identity of the node.
penstock_node_info{cluster_id="c",node_id="7",roles="broker",version="1"} 1
penstock_clock_seconds 1000.5
penstock_log_flush_seconds_bucket{le="0.5"} 20
penstock_log_flush_seconds_bucket{le="1.0"} 28
penstock_log_flush_seconds_bucket{le="+Inf"} 40
penstock_log_flush_seconds_count 40
"""


@pytest.mark.parametrize(
    ("asked_ms", "answered_ms", "ahead_ms"),
    [
        (1_000_400, 1_000_600, 0),
        (1_000_500, 1_000_500, 0),
        (995_000, 997_000, 3_500),
        (1_004_000, 1_009_000, -3_500),
    ],
)
def test_a_clock_is_compared_with_both_ends_of_the_request(
    asked_ms: int, answered_ms: int, ahead_ms: int
) -> None:
    expected = NodePage(7, ahead_ms, Flushes(40, 12))
    assert parse_page(PAGE, asked_ms, answered_ms) == expected


def test_a_page_of_an_earlier_release_has_no_clock() -> None:
    text = "".join(line for line in PAGE.splitlines(True) if "node_info" in line)
    assert parse_page(text, 0, 0) == NodePage(7)


def test_disks_that_do_not_answer_are_named() -> None:
    text = PAGE + (
        'penstock_log_directory_stalled{directory="/fast"} 0\n'
        'penstock_log_directory_stalled{directory="/d\\\\1 \\"a\\""} 1\n'
    )
    assert parse_page(text, 0, 0).stalled_dirs == ('/d\\1 "a"',)


def test_flushes_between_two_pages() -> None:
    first = NodePage(7, flushes=Flushes(40, 12))
    assert NodePage(7, flushes=Flushes(44, 15)).after(first).recent_flushes == Flushes(4, 3)
    assert NodePage(7).after(NodePage(7)).recent_flushes == Flushes(0, 0)
    restarted = NodePage(7, flushes=Flushes(2, 0))
    assert restarted.after(first).recent_flushes is None


def test_a_page_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not the page"):
        parse_page("go_goroutines 7\n", 0, 0)


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[str, str]]:
    """Return the bootstrap server of a broker, and the address of its page."""
    address = f"127.0.0.1:{free_port()}"
    with penstock.Cluster({"penstock.metrics.listener": f"http://{address}"}) as cluster:
        yield cluster.bootstrap_servers, address


def test_doctor_sees_the_clock_of_a_node_by_its_page(node: tuple[str, str]) -> None:
    bootstrap, address = node
    request = Request(bootstrap, over_s=0.0, metrics=(address, "127.0.0.1:1"))
    seen = run(lambda world: gather(world, request))
    assert seen.brokers[1].clock_ahead_ms == 0
    assert [(each.subject, each.reason) for each in seen.unseen] == [
        ("a page of metrics", "127.0.0.1:1: connection refused")
    ]
    assert "clock-differs" not in {finding.code for finding in examine(seen)}


TOKEN = "a-long-secret"


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (None, "it asks for a token (penstock.metrics.token): give it with --metrics-token"),
        ("another", "it refuses the token: its own is another one"),
        ("with\r\nX-Header: 1", "the token has characters that an HTTP header cannot have"),
        (TOKEN, ""),
    ],
)
def test_doctor_reads_a_page_that_asks_for_a_token(
    guarded: tuple[str, str], token: str | None, why: str
) -> None:
    bootstrap, address = guarded
    request = Request(bootstrap, over_s=0.0, metrics=(address,), metrics_token=token)
    assert TOKEN not in repr(request)
    seen = run(lambda world: gather(world, request))
    assert seen.brokers[1].clock_ahead_ms == (None if why else 0)
    reasons = [each.reason for each in seen.unseen if each.subject == "a page of metrics"]
    assert reasons == ([f"{address}: {why}"] if why else [])


def test_the_token_of_a_local_node_is_in_its_properties(
    guarded: tuple[str, str], tmp_path: Path
) -> None:
    _bootstrap, address = guarded
    (tmp_path / "1").mkdir()
    properties = tmp_path / "1" / "server.properties"
    properties.write_text(
        f"penstock.metrics.listener=http://{address}\npenstock.metrics.token=old\n"
        f"penstock.metrics.token = {TOKEN}\n"
    )
    assert local_addresses(tmp_path) == {address: TOKEN}
    page = run(lambda world: read_page(world, address, TOKEN))
    assert page.node_id == 1


def test_the_token_may_come_from_the_environment(guarded: tuple[str, str]) -> None:
    bootstrap, address = guarded
    words = ["doctor", "--bootstrap-server", bootstrap, "--metrics", address, "--over", "0"]
    done = CliRunner().invoke(
        build("doctor"), [*words, "--json"], env={"PENSTOCK_METRICS_TOKEN": TOKEN}
    )
    assert json.loads(done.stdout)["unseen"] == []
    done = CliRunner().invoke(build("doctor"), [*words, "--json"])
    assert "asks for a token" in done.stdout


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[str, str]]:
    """Return the bootstrap server of a broker whose page asks for a token, and its address."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "penstock.metrics.listener": f"http://{address}",
        "penstock.metrics.token": TOKEN,
    }
    with penstock.Cluster(settings) as cluster:
        yield cluster.bootstrap_servers, address


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "asks for a token"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "does not answer with a page"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer with a page"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "not the page of metrics"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 9_000_000, "more than"),
    ],
)
def test_a_server_that_is_no_page(answer: bytes, why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async def main(world: World) -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NoPage, match=why):
                await read_page(world, f"127.0.0.1:{port}")

    run(main)
