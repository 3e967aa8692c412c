"""Every option of the source and the sink, and the errors for invalid values."""

from __future__ import annotations

import pytest

from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel
from penstock.ids import TopicPartition
from penstock.records.compression import Codec
from penstock.spark.options import OptionError, SourceOptions, sink_options, source_options
from penstock.spark.options.offset_limits import (
    RelativeTime,
    SpecificOffsets,
    SpecificTimestamps,
)
from penstock.spark.options.source import Assign, Subscribe, SubscribePattern

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def source(*, streaming: bool = False, **options: str) -> SourceOptions:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return source_options({**SERVERS, "subscribe": "orders", **dotted}, streaming=streaming)


def error_of(*, streaming: bool = False, **options: str) -> str:
    with pytest.raises(OptionError) as raised:
        source(streaming=streaming, **options)
    return str(raised.value)


def test_defaults_equal_sparks_connector_except_isolation_level() -> None:
    batch, stream = source(), source(streaming=True)
    assert (batch.starting, batch.ending, stream.starting) == (EARLIEST, LATEST, LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.fetch.isolation is IsolationLevel.READ_COMMITTED
    assert batch.max_trigger_delay_s == 900
    assert (batch.min_partitions, batch.max_offsets_per_trigger) == (None, None)


def test_option_names_ignore_case() -> None:
    options = source_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "orders", "failondataloss": "FALSE"},
        streaming=False,
    )
    assert options.connection.bootstrap_servers == "a:1"
    assert not options.fail_on_data_loss


def test_subscriptions() -> None:
    assert source(subscribe=" orders, payments ,orders").subscription == Subscribe(
        ("orders", "payments")
    )
    assigned = source_options(
        {**SERVERS, "assign": '{"orders": [0, 2], "payments": [1]}'}, streaming=False
    ).subscription
    orders, payments = "orders", "payments"
    assert assigned == Assign(
        frozenset(
            {TopicPartition(orders, 0), TopicPartition(orders, 2), TopicPartition(payments, 1)}
        )
    )
    pattern = source_options(
        {**SERVERS, "subscribePattern": "orders-.*"}, streaming=False
    ).subscription
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.fullmatch("orders-eu")


def test_specific_offsets() -> None:
    options = source(
        startingOffsets='{"orders": {"0": 23, "1": -2}}',
        endingOffsets='{"orders": {"0": -1, "1": 50}}',
    )
    assert options.starting == SpecificOffsets(
        {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST}
    )
    assert options.ending == SpecificOffsets(
        {TopicPartition("orders", 0): LATEST, TopicPartition("orders", 1): 50}
    )
    assert source(streaming=True, startingOffsets=" Earliest ").starting == EARLIEST


def test_timestamps_override_offsets_and_a_global_one_overrides_per_partition() -> None:
    each = '{"orders": {"0": 1000}}'
    options = source(
        startingOffsets="earliest",
        startingOffsetsByTimestamp=each,
        endingTimestamp="2000",
        endingOffsetsByTimestamp=each,
    )
    assert options.starting == SpecificTimestamps(
        {TopicPartition("orders", 0): 1000}, False, "startingOffsetsByTimestamp"
    )
    assert options.ending == SpecificTimestamps(2000, False, "endingTimestamp")
    lenient = source(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting == SpecificTimestamps(5, True, "startingTimestamp")


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("-10 minutes", 600_000),
        (" -10m ", 600_000),
        ("-90 SECONDS", 90_000),
        ("-1 hour 30 minutes", 5_400_000),
        ("-2d", 172_800_000),
        ("-1 week", 604_800_000),
        ("-250ms", 250),
    ],
)
def test_positions_relative_to_now(text: str, ago_ms: int) -> None:
    assert source(streaming=True, startingOffsets=text).starting == RelativeTime(
        ago_ms, True, "startingOffsets"
    )
    options = source(startingTimestamp=text, endingTimestamp="-1s")
    assert options.starting == RelativeTime(ago_ms, True, "startingTimestamp")
    assert options.ending == RelativeTime(1000, True, "endingTimestamp")
    strict = source(startingOffsets=text, startingOffsetsByTimestampStrategy="error")
    assert strict.starting == RelativeTime(ago_ms, False, "startingOffsets")


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 2**20), ("512k", 2**19), ("64 MB", 2**26), ("1g", 2**30)]
)
def test_bytes(text: str, size: int) -> None:
    assert source(streaming=True, maxBytesPerTrigger=text).max_bytes_per_trigger == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("2m", 120),
        ("1min", 60),
        ("1h", 3600),
        ("1d", 86400),
        ("250", 0.25),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert source(maxTriggerDelay=text).max_trigger_delay_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscribePattern": "a"},
            "exactly one of the options subscribe, subscribePattern and assign",
        ),
        ({"subscribe": " , "}, "the option subscribe is empty"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"path": "orders"}, "has no option path"),
        ({"startingOffsets": "first"}, "earliest, latest or offsets such as"),
        ({"startingOffsets": "-10 parsecs"}, "or a duration such as -10 minutes"),
        ({"startingTimestamp": "10 minutes"}, "or a duration such as -10 minutes"),
        ({"maxBytesPerTrigger": "0"}, "must be a number of bytes such as 1048576, 64m or 1g"),
        ({"maxBytesPerTrigger": "1x"}, "must be a number of bytes"),
        ({"maxBytesPerTrigger": "99999999999t"}, "must be a number of bytes"),
        ({"filterPushdown": "true"}, "filterPushdown=true is refused"),
        ({"kafka__metadata__max__age__ms": "-1"}, "from 0 to 2147483647"),
        ({"startingOffsets": '{"orders": {"0": 1'}, "not valid JSON"),
        ({"startingOffsets": '{"orders": [1]}'}, "does not map partitions to numbers"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "orders-0 is 1.5"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "orders-0 is true"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "at least -2"),
        ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "must be an integer"),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, "is not a partition number (topic orders)"),
        (
            {"startingOffsets": '{"orders": {"2147483648": 1}}'},
            "is not a partition number (topic orders)",
        ),
        ({"startingOffsets": "{}"}, "it is empty"),
        ({"startingOffsets": "latest"}, "use earliest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "use earliest"),
        ({"endingOffsets": "earliest"}, "use latest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "use latest"),
        ({"startingTimestamp": "yesterday"}, "must be an integer"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "at least 0"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"includeHeaders": "1"}, "true or false"),
        ({"columns": "value,offsets"}, "must be some of key, value, topic"),
        ({"columns": "value,value"}, "each once"),
        ({"columns": ""}, "must be some of"),
        ({"columns": "json"}, "json with jsonFields"),
        ({"columns": "headers"}, "headers with includeHeaders=true"),
        ({"jsonFields": ""}, "a list of names and types such as"),
        ({"jsonFields": "a"}, "a list of names and types such as"),
        ({"jsonFields": "a STRING,"}, "a list of names and types such as"),
        ({"jsonFields": "a DECIMAL"}, "a field of type DECIMAL"),
        ({"jsonFields": "a STRING, a LONG"}, "has a field twice"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "-5"}, "at least 1"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "is greater than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "soon"}, "a duration such as"),
        ({"kafka__bootstrap__servers": "localhost:port"}, "not an address"),
        ({"kafka__isolation__level": "serializable"}, "read_committed, read_uncommitted"),
        ({"kafka__auto__offset__reset": "earliest"}, "startingOffsets"),
        ({"kafka__enable__auto__commit": "true"}, "checkpoint"),
        ({"kafka__value__deserializer": "x"}, "DataFrame functions"),
        ({"kafka__security__protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({"kafka__security__protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"kafka__sasl__kerberos__service__name": "kafka"}, "not a known client setting"),
        (
            {
                "kafka__security__protocol": "SASL_PLAINTEXT",
                "kafka__sasl__mechanism": "PLAIN",
                "kafka__sasl__jaas__config": "com.sun.JndiLoginModule required;",
            },
            "kafka.sasl.jaas.config: the login module of the JAAS config is not allowed",
        ),
        (
            {"kafka__max__partition__fetch__byte": "1"},
            "did you mean kafka.max.partition.fetch.bytes?",
        ),
        ({"kafka__max__partition__fetch__bytes": "0"}, "from 1 to 2147483647"),
        ({"kafka__acks": "all"}, "not a known client setting"),
    ],
)
def test_invalid_source_options(options: dict[str, str], message: str) -> None:
    assert message in error_of(streaming=False, **options)


def test_missing_and_invalid_subscriptions_and_servers() -> None:
    with pytest.raises(OptionError, match="none of them is set"):
        source_options(SERVERS, streaming=False)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "orders"}, streaming=False)
    for pattern, message in (("(", "not a valid regular expression"), (" ", "is empty")):
        with pytest.raises(OptionError, match=message):
            source_options({**SERVERS, "subscribePattern": pattern}, streaming=False)
    for assign in ('{"orders": 1}', '{"orders": [-1]}', "[1]", "{}", '{"orders": ["0"]}'):
        with pytest.raises(OptionError, match="assign is invalid"):
            source_options({**SERVERS, "assign": assign}, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streams_have_no_ending_offsets(name: str) -> None:
    assert "readStream" in error_of(streaming=True, **{name: "1"})


def test_security_options() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="hidden";',
    }
    options = {f"kafka.{name}": value for name, value in settings.items()}
    read = source_options({**SERVERS, **options, "subscribe": "orders"}, streaming=True)
    written = sink_options({**SERVERS, **options})
    for connection in (read.connection, written.connection):
        assert dict(connection.security) == settings
        assert "hidden" not in repr(connection)


def test_kafka_options() -> None:
    options = source(
        kafka__request__timeout__ms="1500",
        kafka__default__api__timeout__ms="9000",
        kafka__client__id="job",
        kafka__isolation__level="READ_UNCOMMITTED",
        kafka__max__partition__fetch__bytes="1000",
        kafka__metadata__max__age__ms="2500",
        kafka__group__id="ignored",
        kafka__receive__buffer__bytes="1",
        kafka__security__protocol="plaintext",
    )
    assert (
        options.connection.request_timeout_s,
        options.connection.api_timeout_s,
        options.connection.client_id,
    ) == (1.5, 9.0, "job")
    assert (options.fetch.isolation, options.fetch.max_bytes, options.metadata_max_age_s) == (
        IsolationLevel.READ_UNCOMMITTED,
        1000,
        2.5,
    )


def test_sink_options() -> None:
    defaults = sink_options({**SERVERS, "checkpointLocation": "/c", "queryName": "q"})
    assert (defaults.topic, defaults.acks, defaults.idempotent, defaults.codec) == (
        None,
        -1,
        True,
        Codec.LZ4,
    )
    explicit = sink_options(
        {
            **SERVERS,
            "topic": " out ",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.linger.ms": "5",
        }
    )
    assert (explicit.topic, explicit.acks, explicit.idempotent, explicit.codec) == (
        "out",
        1,
        False,
        Codec.ZSTD,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": " "}, "is empty"),
        ({"topics": "out"}, "did you mean topic?"),
        ({"startingOffsets": "earliest"}, "sink has no option"),
        ({"kafka.acks": "0"}, "all, -1, 1"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "requires kafka.acks=all"),
        ({"kafka.compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"kafka.transactional.id": "t"}, "use the option sinkName"),
        ({"kafka.partitioner.class": "x"}, "column partition"),
        ({"kafka.value.serializer": "x"}, "binary columns"),
    ],
)
def test_invalid_sink_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        sink_options({**SERVERS, **options})
    assert message in str(raised.value)
