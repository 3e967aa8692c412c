"""Kafka's tools for producing, consuming and inspecting, against a real broker."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.cli.kafka import (
    api_versions,
    console_consumer,
    console_producer,
    delete_records,
    dump_log,
    features,
    get_offsets,
    log_dirs,
    producer_perf_test,
    topics,
)
from tests.cli.kafka_tool import Result, Tool

TIMEOUT_MS = "20000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[penstock.Cluster]:
    with penstock.Cluster() as cluster:
        yield cluster


@pytest.fixture
def tool(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    cluster: penstock.Cluster,
) -> Tool:
    def call(
        run: Callable[[Sequence[str]], int], *words: str, stdin: bytes = b"", bootstrap: bool = True
    ) -> Result:
        monkeypatch.setattr(
            "sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        )
        try:
            code = run(
                [*(["--bootstrap-server", cluster.bootstrap_servers] if bootstrap else []), *words]
            )
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return call


@pytest.fixture
def produce(tool: Tool) -> Callable[..., Result]:
    def call(topic: str, text: str, *words: str, partitions: int = 1) -> Result:
        tool(
            topics.run,
            "--create",
            "--topic",
            topic,
            "--partitions",
            str(partitions),
            "--if-not-exists",
        )
        return tool(console_producer.run, "--topic", topic, *words, stdin=text.encode())

    return call


def consume(tool: Tool, topic: str, count: int, *words: str) -> list[str]:
    options = (
        "--topic",
        topic,
        "--from-beginning",
        "--max-messages",
        str(count),
        "--timeout-ms",
        TIMEOUT_MS,
    )
    code, out, err = tool(console_consumer.run, *options, *words)
    assert (code, err) == (0, f"Processed a total of {count} messages\n")
    return out.splitlines()


def test_console_producer_and_consumer_exchange_lines(
    tool: Tool, produce: Callable[..., Result]
) -> None:
    assert produce("lines", "one\ntwo\n", "--compression-codec", "zstd") == (0, "", "")
    assert consume(tool, "lines", 2) == ["one", "two"]
    assert consume(tool, "lines", 1) == ["one"]


def test_console_tools_parse_and_print_keys_headers_and_nulls(
    tool: Tool, produce: Callable[..., Result]
) -> None:
    reader_options = (
        "--property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        "--reader-property",
        "null.marker=NONE",
    )
    assert produce("full", "a:1,b:2\tk\tv\nNONE\tk\tNONE\n", *reader_options, "--sync") == (
        0,
        "",
        "",
    )
    printed = ("print.key", "print.headers", "print.partition", "print.offset")
    options = [word for name in printed for word in ("--formatter-property", f"{name}=true")]
    assert consume(tool, "full", 2, *options) == [
        "Partition:0\tOffset:0\ta:1,b:2\tk\tv",
        "Partition:0\tOffset:1\tNO_HEADERS\tk\tnull",
    ]
    code, out, err = produce("full", "no tab\n", "--property", "parse.key=true")
    assert (code, out, err) == (1, "", "No key separator found on line number 1: 'no tab'\n")


def test_the_console_consumer_exits_after_the_timeout(
    tool: Tool, produce: Callable[..., Result]
) -> None:
    produce("short", "one\n")
    code, out, err = tool(
        console_consumer.run,
        "--topic",
        "short",
        "--partition",
        "0",
        "--offset",
        "1",
        "--timeout-ms",
        "300",
    )
    assert (code, out) == (0, "")
    assert "TimeoutException" in err
    assert err.endswith("Processed a total of 0 messages\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--topic", "t", "--include", "t"], "Exactly one of --include/--topic is required."),
        (["--topic", "t", "--offset", "1"], "The partition is required when offset is specified."),
        (
            ["--topic", "t", "--partition", "0", "--offset", "x"],
            "The provided offset value 'x' is incorrect.",
        ),
        (["--topic", "t", "--formatter", "a.B"], "--formatter a.B is not supported"),
        (
            ["--topic", "t", "--isolation-level", "x"],
            "Invalid value x for configuration isolation.level",
        ),
    ],
)
def test_invalid_console_consumer_arguments_are_refused(
    tool: Tool, words: list[str], reason: str
) -> None:
    code, out, err = tool(console_consumer.run, *words)
    assert (code, out) == (1, "")
    assert err.startswith(reason)


def test_get_offsets_by_time_and_by_partition(tool: Tool, produce: Callable[..., Result]) -> None:
    produce("spread-a", "x\ny\n", partitions=1)
    produce("spread-b", "", partitions=3)

    def offsets(*words: str) -> tuple[int, str]:
        return tool(get_offsets.run, *words)[:2]

    assert offsets("--topic", "spread-a") == (0, "spread-a:0:2\n")
    assert offsets("--topic", "spread-.*", "--time", "earliest", "--partitions", "0,2") == (
        0,
        "spread-a:0:0\nspread-b:0:0\nspread-b:2:0\n",
    )
    assert offsets("--topic-partitions", "spread-a,spread-b:0-2") == (
        0,
        "spread-a:0:2\nspread-b:0:0\nspread-b:1:0\n",
    )
    assert offsets("--topic", "spread-b", "--time", "-3") == (0, "")
    assert tool(get_offsets.run, "--topic", "none") == (
        1,
        "",
        "Error occurred: Could not match any topic-partitions with the specified filters\n",
    )
    assert tool(get_offsets.run, "--topic", "spread-a", "--time", "noon")[2].startswith(
        "Error occurred: Malformed time argument noon"
    )


def test_delete_records_moves_the_log_start(
    tool: Tool, produce: Callable[..., Result], tmp_path: Path
) -> None:
    produce("shed", "a\nb\nc\n")
    file = tmp_path / "offsets.json"

    def delete(offset: int) -> str:
        file.write_text(
            json.dumps(
                {"version": 1, "partitions": [{"topic": "shed", "partition": 0, "offset": offset}]}
            )
        )
        code, out, _err = tool(delete_records.run, "--offset-json-file", str(file))
        assert code == 0
        return out.splitlines()[-1]

    assert delete(2) == "partition: shed-0\tlow_watermark: 2"
    assert delete(9).startswith(
        "partition: shed-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: "
    )
    assert delete(-1) == "partition: shed-0\tlow_watermark: 3"


def test_log_dirs_reports_the_sizes_of_partitions(
    tool: Tool, produce: Callable[..., Result]
) -> None:
    produce("placed", "something\n", partitions=2)
    code, out, err = tool(log_dirs.run, "--describe", "--topic-list", "placed")
    assert (code, err) == (0, "")
    (broker,) = json.loads(out.splitlines()[-1])["brokers"]
    partitions = {
        partition["partition"]: partition["size"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    }
    assert set(partitions) == {"placed-0", "placed-1"}
    assert sum(partitions.values()) > 0
    assert (
        "do not exist from --broker-list: 9."
        in tool(log_dirs.run, "--describe", "--broker-list", "9")[2]
    )


def test_api_versions_and_features(tool: Tool, cluster: penstock.Cluster) -> None:
    code, out, _err = tool(api_versions.run)
    assert code == 0
    first, *lines, last = out.splitlines()
    assert first == f"{cluster.bootstrap_servers} (id: 1 rack: null isFenced: false) -> ("
    assert "\tFetch(1): 4 to 18 [usable: 18]," in lines
    assert last == ")"
    code, out, _err = tool(features.run, "describe")
    assert code == 0
    assert re.search(
        (
            r"^Feature: metadata\.version\tSupportedMinVersion: "
            r"4.3-IV0\t.*\tFinalizedVersionLevel: "
            r"4.3-IV0\tEpoch: \d+$"
        ),
        out,
        re.M,
    )


def test_a_feature_is_disabled_and_upgraded(tool: Tool) -> None:
    def described() -> str:
        (line,) = (
            line
            for line in tool(features.run, "describe")[1].splitlines()
            if line.startswith("Feature: group.version\t")
        )
        return line.rpartition("\t")[0]

    prefix = (
        "Feature: group.version\tSupportedMinVersion: 0\tSupportedMaxVersion: "
        "1\tFinalizedVersionLevel: "
    )
    assert described() == f"{prefix}1"
    assert tool(features.run, "disable", "--feature", "group.version") == (
        0,
        "group.version was disabled.\n",
        "",
    )
    assert described() == f"{prefix}0"
    assert tool(features.run, "upgrade", "--feature", "group.version=1") == (
        0,
        "group.version was upgraded to 1.\n",
        "",
    )
    assert described() == f"{prefix}1"


def test_the_producer_perf_test_writes_and_counts_its_records(
    tool: Tool, produce: Callable[..., Result]
) -> None:
    produce("fast", "")
    words = (
        "--topic",
        "fast",
        "--num-records",
        "500",
        "--record-size",
        "100",
        "--throughput",
        "-1",
    )
    code, out, _err = tool(producer_perf_test.run, *words)
    assert code == 0
    assert out.splitlines()[-1].startswith("500 records sent, ")
    assert tool(get_offsets.run, "--topic", "fast")[1] == "fast:0:500\n"


def test_dump_log_prints_kafkas_format(tool: Tool, produce: Callable[..., Result]) -> None:
    produce("dumped", "k=v\n", "--property", "parse.key=true", "--property", "key.separator==")
    directory = Path(
        json.loads(tool(log_dirs.run, "--describe")[1].splitlines()[-1])["brokers"][0]["logDirs"][
            0
        ]["logDir"]
    )
    segment = str(directory / "dumped-0" / f"{0:020}.log")
    code, out, err = tool(dump_log.run, "--files", segment, "--print-data-log", bootstrap=False)
    assert (code, err) == (0, "")
    dumping, starting, batch, record = out.splitlines()
    assert (dumping, starting) == (f"Dumping {segment}", "Log starting offset: 0")
    assert re.match(
        r"baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: \d+ ",
        batch,
    )
    assert re.fullmatch(
        (
            r"\| offset: 0 CreateTime: \d+ keySize: 1 valueSize: 1 sequence: 0 headerKeys: \[\] "
            r"key: "
            r"k payload: v"
        ),
        record,
    )
    metadata = str(directory / "__cluster_metadata-0" / f"{0:020}.log")
    out = tool(dump_log.run, "--files", metadata, "--cluster-metadata-decoder", bootstrap=False)[1]
    records = [
        json.loads(line.partition("payload: ")[2])
        for line in out.splitlines()
        if "payload: " in line
    ]
    created = [
        record
        for record in records
        if record["type"] == "TOPIC_RECORD" and record["data"]["name"] == "dumped"
    ]
    assert [record["version"] for record in created] == [0]
