"""The rows of the sink in docs/SPARK-OPTIONS.md are complete, have the real defaults and name tests
that exist."""

from __future__ import annotations

import pytest

from penstock.spark.options import SinkOptions, sink_options
from penstock.spark.options.kafka import _SINK
from penstock.spark.options.sink import SINK_OPTIONS
from tests.spark.test_spark_option_reference import TEXT, assert_names_tests, rows

SINK = rows("Sink")
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_reference_has_every_option_of_the_sink() -> None:
    assert set(SINK) == {*SINK_OPTIONS.names, *(f"kafka.{name}" for name in _SINK)}
    for ignored in SINK_OPTIONS.ignored:
        assert f"`{ignored}`" in TEXT


def defaults(options: SinkOptions) -> dict[str, object]:
    """Return the defaults of options that are not set."""
    assert (options.topic, options.sink_name, options.txn) == (None, None, None)
    assert (options.acks, options.idempotent) == (-1, True)
    return {
        "kafka.compression.type": options.codec.name.lower(),
        "kafka.batch.size": options.batch_bytes,
        "kafka.max.request.size": options.max_request_bytes,
        "kafka.buffer.memory": options.buffer_bytes,
        "kafka.delivery.timeout.ms": round(options.delivery_timeout_s * 1000),
        "kafka.request.timeout.ms": round(options.connection.request_timeout_s * 1000),
        "kafka.default.api.timeout.ms": round(options.connection.api_timeout_s * 1000),
        "kafka.client.id": options.connection.client_id,
    }


@pytest.mark.parametrize("streaming", [True, False])
def test_reference_has_the_defaults_of_the_sink(streaming: bool) -> None:
    expected = defaults(sink_options(SERVERS, streaming=streaming))
    assert {option: SINK[option][0] for option in expected} == {
        option: f"`{value}`" for option, value in expected.items()
    }


@pytest.mark.parametrize("option", SINK)
def test_sink_option_is_tested(option: str) -> None:
    assert_names_tests(SINK[option][-1])
