"""A node writes its log as text or JSON, and leaves out lines that repeat too often."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator
from datetime import UTC

import pytest

from penstock.cli import log_limit
from penstock.cli.log_output import new_handler
from penstock.config.node import NodeConfig, read_node_config
from penstock.health.log_lines import MAX_EVENTS, read_log
from penstock.health.observations import EventKind
from penstock.ids import TopicPartition
from penstock.limits import LOGGED_PARTITIONS

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


LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def forged() -> str:
    """Return a text that has a line of a node's log after each character that ends a line."""
    line = "2001-01-01 09:01:10,000 ERROR [node 7] penstock.log.store: payments-0 is damaged: CRC"
    as_json = (
        '{"time": "2001-01-01T09:01:10Z", "logger": "l", "message": "payments-0 is damaged: x"}'
    )
    return "x" + "".join(f"{end}{line}{end}{as_json}" for end in LINE_ENDS) + "\x1b[31m"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_client_cannot_forge_a_line(logger: logging.Logger, log_format: str) -> None:
    """Names that clients choose are in messages, and in the texts of exceptions."""
    stream = written_to(logger, config(penstock_log_format=log_format))
    logger.warning("unknown topic %s", forged())
    try:
        raise ValueError(forged())
    except ValueError:
        logger.exception("a handler failed", stack_info=True)
    text = stream.getvalue()
    assert "payments-0 is damaged" in text
    assert "\x1b" not in text, "a terminal would obey"
    assert read_log(7, text, UTC).events == ()
    assert not [line for line in text.splitlines() if line.startswith(("2001", '{"time": "2001'))]


def test_a_message_in_two_lines_is_one_line_of_text(logger: logging.Logger) -> None:
    stream = written_to(logger, config())
    logger.info("first\nsecond\t\u2028third: Zürich \U0001f600 C:\\node")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(": first\\nsecond\\t\\u2028third: Zürich \U0001f600 C:\\node")


def test_lines_of_a_traceback_are_indented(logger: logging.Logger) -> None:
    stream = written_to(logger, config())
    try:
        raise ValueError("reason")
    except ValueError:
        logger.exception("failed")
    head, *traceback = stream.getvalue().splitlines()
    assert head.endswith(": failed")
    assert traceback[0] == "    Traceback (most recent call last):"
    assert traceback[-1] == "    ValueError: reason"
    assert read_log(7, stream.getvalue(), UTC).last_line == "ValueError: reason"


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
    monkeypatch.setattr(log_limit, "monotonic", lambda: now[0])
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
        "52 lines like this one were left out: line 3 of 100 %",
        "line 0 of 100 %",
        "line 1 of 100 %",
        "another place",
    ]


def test_the_last_line_before_the_limit_has_its_partition(logger: logging.Logger) -> None:
    settings = {"penstock_log_format": "json", "penstock_log_rate_limit": "1"}
    stream = written_to(logger, config(**settings))
    logger.error("%s is damaged, 100 %%: %s", PARTITION, "CRC")
    event = json.loads(stream.getvalue())
    assert event["partition"] == "payments-3"
    left_out = (
        "(further lines like this one are left out for 10 s, except the first of each partition)"
    )
    assert event["message"] == f"payments-3 is damaged, 100 %: CRC {left_out}"


def test_the_number_of_lines_left_out_is_told_with_the_next_line_of_any_place(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(log_limit, "monotonic", lambda: now[0])
    stream = written_to(logger, config(penstock_log_rate_limit="2"))
    for number in range(4):
        logger.warning("line %d\nforged", number)
    now[0] += 9.9
    logger.info("too early")
    now[0] += 0.1
    logger.info("another place")
    logger.info("a third place")
    lines = [line.split(" ", 2)[2] for line in stream.getvalue().splitlines()]
    name = "[node 7] penstock.test_log_output:"
    assert lines[2:] == [
        f"INFO {name} too early",
        f"WARNING {name} 2 lines like this one were left out: line 2\\nforged",
        f"INFO {name} another place",
        f"INFO {name} a third place",
    ]


def test_the_number_of_lines_left_out_is_told_at_the_end(logger: logging.Logger) -> None:
    stream = written_to(logger, config(penstock_log_rate_limit="1"))
    for number in range(3):
        logger.info("line %d", number)
    (limit,) = (each for handler in logger.handlers for each in handler.filters)
    assert isinstance(limit, log_limit.RateLimit)
    for _call in range(2):
        limit.tell(math.inf)
    assert stream.getvalue().count("2 lines like this one were left out: line 1\n") == 1


def test_the_first_error_of_each_partition_is_not_left_out(logger: logging.Logger) -> None:
    """doctor finds causes in them. There is a bound: a node may have 100,000 partitions."""
    stream = written_to(logger, config(penstock_log_rate_limit="3"))
    for index in range(50):
        logger.info("%s: in-sync replicas are [1]", TopicPartition("t", index))
    for _round in range(2):
        for index in range(LOGGED_PARTITIONS + 50):
            logger.error("%s is damaged: %s", TopicPartition("t", index), "CRC")
    events = read_log(7, stream.getvalue(), UTC).events
    damaged = [event.subject for event in events if event.kind is EventKind.DAMAGED]
    assert damaged == [f"t-{index}" for index in range(LOGGED_PARTITIONS)][-MAX_EVENTS:]
    assert stream.getvalue().count("in-sync replicas") == 3


def test_no_limit(logger: logging.Logger) -> None:
    stream = written_to(logger, config(penstock_log_rate_limit="0"))
    for number in range(1_000):
        logger.info("line %d", number)
    assert len(stream.getvalue().splitlines()) == 1_000


def test_unknown_format_is_refused() -> None:
    with pytest.raises(Exception, match=r"penstock\.log\.format"):
        config(penstock_log_format="xml")
