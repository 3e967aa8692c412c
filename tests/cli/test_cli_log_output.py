"""A node writes its log as text or JSON, and leaves out lines that repeat too often."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.cli import log_output
from penstock.cli.log_output import new_handler
from penstock.config.node import NodeConfig, read_node_config
from penstock.ids import TopicPartition

PARTITION = TopicPartition("payments", 3)


def config(**settings: str) -> NodeConfig:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "7",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "7@127.0.0.1:9093",
        "log.dirs": "/data",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    return read_node_config(text.encode(), "server.properties")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("penstock.test_log_output")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()


def written_to(logger: logging.Logger, given: NodeConfig) -> io.StringIO:
    stream = io.StringIO()
    logger.addHandler(new_handler(given, None, stream))
    return stream


def test_text_names_level_and_node(logger: logging.Logger) -> None:
    stream = written_to(logger, config())
    logger.info("%s: in-sync replicas are %s", PARTITION, [1, 2])
    line = stream.getvalue()
    expected = " INFO [node 7] penstock.test_log_output: payments-3: in-sync replicas are [1, 2]\n"
    assert line.endswith(expected)


def test_json_has_one_object_a_line(logger: logging.Logger) -> None:
    stream = written_to(logger, config(penstock_log_format="json"))
    logger.warning("%s: log\nin two lines", PARTITION, extra={"epoch": 5, "cause": "slow disk"})
    try:
        raise ValueError("reason")
    except ValueError:
        logger.exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    time = first.pop("time")
    assert len(time) == len("2026-11-18T05:39:28.387Z")
    assert first == {
        "level": "WARNING",
        "node": 7,
        "logger": "penstock.test_log_output",
        "message": "payments-3: log\nin two lines",
        "partition": "payments-3",
        "epoch": 5,
        "cause": "slow disk",
    }
    assert "ValueError: reason" in second["traceback"]


def test_lines_of_one_place_are_limited_and_counted(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(log_output, "monotonic", lambda: now[0])
    stream = written_to(logger, config(penstock_log_rate_limit="3"))

    def repeat(count: int) -> list[str]:
        stream.truncate(stream.seek(0))
        for number in range(count):
            logger.info("line %d of 100 %%", number)
        logger.info("another place")
        return [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()]

    assert repeat(50) == [
        "line 0 of 100 %",
        "line 1 of 100 %",
        "line 2 of 100 % (further lines like this one are left out for 10 s)",
        "another place",
    ]
    now[0] += 9.0
    assert repeat(5) == ["another place"]
    now[0] += 1.0
    assert repeat(2) == [
        "line 0 of 100 % (52 lines like this one were left out before it)",
        "line 1 of 100 %",
        "another place",
    ]


def test_no_limit(logger: logging.Logger) -> None:
    stream = written_to(logger, config(penstock_log_rate_limit="0"))
    for number in range(1_000):
        logger.info("line %d", number)
    assert len(stream.getvalue().splitlines()) == 1_000


def test_unknown_format_is_refused() -> None:
    with pytest.raises(Exception, match=r"penstock\.log\.format"):
        config(penstock_log_format="xml")
