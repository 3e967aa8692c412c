"""Options of `df.write` and `df.writeStream` with format("penstock"). Pure.

The kafka.* options are in `kafka`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.records.compression import Codec
from penstock.spark.options.kafka import ConnectionOptions, KafkaOptions
from penstock.spark.options.values import OptionError, OptionNames

SINK_OPTIONS = OptionNames(
    "sink", ("topic",), ignored=("includeHeaders", "checkpointLocation", "queryName")
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: ConnectionOptions
    topic: str | None
    acks: int
    idempotent: bool
    codec: Codec
    batch_bytes: int
    max_request_bytes: int
    buffer_bytes: int
    delivery_timeout_s: float


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a sink.

    OptionError if an option is unknown, missing or invalid, or if options contradict each other.
    """
    known = SINK_OPTIONS.select(options)
    kafka = KafkaOptions.of_sink(options)
    acks = kafka.acks()
    topic = known.get("topic", "").strip()
    if "topic" in known and not topic:
        raise OptionError(
            "the option topic is empty: set it to the topic to write to, or remove it and add a "
            "column topic"
        )
    return SinkOptions(
        connection=kafka.connection(),
        topic=topic or None,
        acks=acks,
        idempotent=kafka.idempotent(acks),
        codec=kafka.codec(),
        batch_bytes=kafka.integer("batch.size", default=512 * 1024, minimum=1),
        max_request_bytes=kafka.integer("max.request.size", default=1024 * 1024, minimum=1),
        buffer_bytes=kafka.integer("buffer.memory", default=32 * 1024 * 1024, minimum=1),
        delivery_timeout_s=kafka.integer("delivery.timeout.ms", default=120_000, minimum=1) / 1000,
    )
