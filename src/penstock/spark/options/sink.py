"""Options of `df.write` and `df.writeStream` with format("penstock"). Pure.

The kafka.* options are in `kafka`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.records.compression import Codec
from penstock.spark.options.kafka import ConnectionOptions, KafkaOptions
from penstock.spark.options.values import OptionError, OptionNames, int_option

# The topic with the decisions of exactly-once sinks. No subscribePattern matches it.
DECISION_TOPIC = "__penstock_spark_sinks"

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

SINK_OPTIONS = OptionNames(
    "sink",
    ("topic", "delivery", "sinkName", "txnAppId", "txnVersion", "checkpointLocation"),
    ignored=("includeHeaders", "queryName"),
)
_MAX_NAME_CHARACTERS = 200
_MAX_TOPIC_CHARACTERS = 249
# A batch write's sink is `<txnAppId>:<topic>`.
_MAX_SINK_CHARACTERS = _MAX_NAME_CHARACTERS + 1 + _MAX_TOPIC_CHARACTERS


@dataclass(frozen=True, slots=True)
class TxnVersion:
    """A batch write is skipped if the application has written this version or a later one."""

    app_id: str
    version: int


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
    exactly_once: bool = False
    sink_name: str | None = None
    checkpoint_location: str | None = None
    txn: TxnVersion | None = None


def sink_options(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Parse the options of a sink.

    OptionError if an option is unknown, missing or invalid, or if options contradict each other.
    """
    known = SINK_OPTIONS.select(options)
    kafka = KafkaOptions.of_sink(options)
    acks = kafka.acks()
    idempotent = kafka.idempotent(acks)
    topic = known.get("topic", "").strip()
    if "topic" in known and not topic:
        raise OptionError(
            "the option topic is empty: set it to the topic to write to, or remove it and add a "
            "column topic"
        )
    txn = None if streaming else _txn(known)
    exactly_once = _exactly_once(known, streaming=streaming, txn=txn)
    if exactly_once and not idempotent:
        raise OptionError(
            "exactly-once delivery requires kafka.acks=all and kafka.enable.idempotence=true: "
            f"remove these options, or set the option delivery to {AT_LEAST_ONCE}"
        )
    return SinkOptions(
        connection=kafka.connection(),
        topic=topic or None,
        acks=acks,
        idempotent=idempotent,
        codec=kafka.codec(),
        batch_bytes=kafka.integer("batch.size", default=512 * 1024, minimum=1),
        max_request_bytes=kafka.integer("max.request.size", default=1024 * 1024, minimum=1),
        buffer_bytes=kafka.integer("buffer.memory", default=32 * 1024 * 1024, minimum=1),
        delivery_timeout_s=kafka.integer("delivery.timeout.ms", default=120_000, minimum=1) / 1000,
        exactly_once=exactly_once,
        sink_name=_name(known, "sinkName"),
        checkpoint_location=known.get("checkpointLocation"),
        txn=txn,
    )


def check_name(option: str, name: str, maximum: int = _MAX_SINK_CHARACTERS) -> str:
    """Return the name of a sink. Its transactional ids begin with the name and a slash."""
    if not name or "/" in name or len(name) > maximum or not name.isprintable():
        raise OptionError(
            f"{option} is {name!r}, but must be 1 to {maximum} printable characters without a slash"
        )
    return name


def _name(known: Mapping[str, str], option: str) -> str | None:
    if option not in known:
        return None
    return check_name(option, known[option].strip(), _MAX_NAME_CHARACTERS)


def _txn(known: Mapping[str, str]) -> TxnVersion | None:
    app_id, version = _name(known, "txnAppId"), int_option(known, "txnVersion", minimum=0)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise OptionError(
            "txnAppId and txnVersion belong together: set both, or remove the one that is set"
        )
    if ":" in app_id:
        raise OptionError(
            f"txnAppId is {app_id!r}, but must not contain a colon, which separates it from the "
            "topic in the name of the sink"
        )
    if topic := known.get("topic", "").strip():
        check_name("topic", topic, _MAX_TOPIC_CHARACTERS)
    return TxnVersion(app_id, version)


def _exactly_once(known: Mapping[str, str], *, streaming: bool, txn: TxnVersion | None) -> bool:
    default = EXACTLY_ONCE if streaming or txn is not None else AT_LEAST_ONCE
    delivery = known.get("delivery", default).strip().lower()
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(
            f"delivery is {known['delivery']!r}, but must be {EXACTLY_ONCE} or {AT_LEAST_ONCE}"
        )
    exactly_once = delivery == EXACTLY_ONCE
    if streaming and ("txnAppId" in known or "txnVersion" in known):
        raise OptionError(
            "txnAppId and txnVersion are options of batch writes, for use in foreachBatch: remove "
            "them from the stream"
        )
    if not streaming and "sinkName" in known:
        raise OptionError(
            "sinkName is an option of streams: for a batch write set txnAppId and txnVersion"
        )
    if exactly_once and not streaming and txn is None:
        raise OptionError(
            f"delivery is {EXACTLY_ONCE}, but a batch write has no batch id by which a repetition "
            "is recognized: set txnAppId and txnVersion, in foreachBatch to a constant and the "
            "batch id"
        )
    if not exactly_once and txn is not None:
        raise OptionError(
            f"delivery is {AT_LEAST_ONCE}, but txnAppId and txnVersion are set: remove one of the "
            "two"
        )
    return exactly_once
