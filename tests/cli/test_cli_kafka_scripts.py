"""Kafka's own names (kafka-topics.sh and so on) against a real broker. The outputs are those of
Apache Kafka 4.3.0's tools, as they were seen against a Kafka of one node; tests/java compares the
two on the same cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import penstock
from penstock.cli.kafka import (
    configs,
    leader_election,
    metadata_quorum,
    server_stop,
    storage,
    topics,
)
from penstock.cli.kafka.options import Refused
from penstock.cli.kafka.server_start import run as server_start
from tests.e2e.penstock_process import free_port

Ended = tuple[int, str, str]
Tool = Callable[..., Ended]
CLUSTER_ID = "UGVuc3RvY2tGaXh0dXJlcw"
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    def call(run: Callable[[Sequence[str]], int], *words: str) -> Ended:
        try:
            code = run(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def kafka_topics(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(topics.run, "--bootstrap-server", bootstrap, *words)


@pytest.fixture
def kafka_configs(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(configs.run, "--bootstrap-server", bootstrap, *words)


def refused(reason: str) -> Ended:
    return 1, f"Error while executing topic command : {reason}\n", ""


def partition(topic: str, index: int) -> str:
    return (
        f"\tTopic: {topic}\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: "
        "\tLastKnownElr: \n"
    )


def test_a_topic_from_creation_to_deletion(kafka_topics: Tool) -> None:
    life = ("--topic", "life")
    created = kafka_topics(
        "--create",
        *life,
        "--partitions",
        "2",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=100000",
    )
    assert created == (0, "Created topic life.\n", "")
    code, out, err = kafka_topics("--describe", *life)
    heading, first, second = out.splitlines(keepends=True)
    assert (code, err, first, second) == (0, "", partition("life", 0), partition("life", 1))
    assert re.fullmatch(
        (
            r"Topic: life\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: "
            r"(.*,)?retention\.ms=100000(,.*)?\n"
        ),
        heading,
    )
    assert kafka_topics("--alter", *life, "--partitions", "3") == (0, "", "")
    assert kafka_topics("--describe", "--topic", "li.*,other")[1].count("Partition: ") == 3
    assert kafka_topics("--list", *life) == (0, "life\n", "")
    assert kafka_topics("--delete", *life) == (0, "", "")
    assert kafka_topics("--list", *life) == (0, "\n", "")


def test_describe_by_id_and_by_filter(kafka_topics: Tool) -> None:
    kafka_topics("--create", "--topic", "found")
    (topic_id,) = re.findall(r"TopicId: (\S+)", kafka_topics("--describe", "--topic", "found")[1])
    by_id = kafka_topics(
        "--describe", "--topic-id", topic_id, "--partition-size-limit-per-response", "1"
    )
    assert by_id == kafka_topics("--describe", "--topic", "found")
    assert kafka_topics("--describe", "--topic", "found", "--at-min-isr-partitions") == (
        0,
        partition("found", 0),
        "",
    )
    for nothing in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert kafka_topics("--describe", "--topic", "found", nothing) == (0, "", "")
    assert kafka_topics("--describe", "--topic", "nobody", "--if-exists") == (0, "", "")
    unknown = "AZ1wbf5DTkqHqR27MwNStg"
    assert kafka_topics("--describe", "--topic-id", unknown) == refused(
        f"TopicId '{unknown}' does not exist as expected"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--describe", "--topic", "nope"], "Topic 'nope' does not exist as expected"),
        (["--delete", "--topic", "nope"], "Topic 'nope' does not exist as expected"),
        (
            ["--alter", "--topic", "nope", "--partitions", "2"],
            "Topic 'nope' does not exist as expected",
        ),
        (["--create", "--topic", "there"], "Topic 'there' already exists."),
        (
            ["--create", "--topic", "p", "--partitions", "x"],
            "Cannot parse argument 'x' of option partitions",
        ),
        (
            ["--create", "--topic", "p", "--partitions", "0"],
            "The partitions must be greater than 0",
        ),
        (
            ["--create", "--topic", "p", "--replication-factor", "0"],
            "The replication factor must be between 1 and 32767 inclusive",
        ),
        (
            ["--create", "--topic", "p", "--replica-assignment", "1:1"],
            "Partition replica lists may not contain duplicate entries: 1",
        ),
        (
            ["--create", "--topic", "p", "--replica-assignment", "1,1:2"],
            "Partition 1 has different replication factor: [1, 2]",
        ),
        (
            ["--create", "--topic", "p", "--config", "x"],
            (
                "requirement failed: Invalid topic config: all configs to be added must be in the "
                'format "key=val".'
            ),
        ),
        (
            ["--create", "--topic", "p", "--replication-factor", "4"],
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 "
            "cannot be reached because only 1 broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        ),
    ],
)
def test_topics_refused_in_kafkas_words(kafka_topics: Tool, words: list[str], reason: str) -> None:
    kafka_topics("--create", "--if-not-exists", "--topic", "there")
    assert kafka_topics(*words) == refused(reason)


def test_more_topics_as_kafka_creates_them(kafka_topics: Tool) -> None:
    assert kafka_topics("--create", "--topic", "twice") == (0, "Created topic twice.\n", "")
    assert kafka_topics("--create", "--topic", "twice", "--if-not-exists") == (0, "", "")
    assert kafka_topics("--create", "--topic", "placed", "--replica-assignment", "1,1") == (
        0,
        "Created topic placed.\n",
        "",
    )
    assert kafka_topics("--describe", "--topic", "placed")[1].count("Partition: ") == 2
    warning = (
        "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
        "('_') could collide. "
        "To avoid issues it is best to use either, but not both.\n"
    )
    assert kafka_topics("--create", "--topic", "a.b_c") == (
        0,
        f"{warning}Created topic a.b_c.\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "first_line"),
    [
        ([], "Create, delete, describe, or change a topic."),
        (["--list"], "--bootstrap-server must be specified"),
        (["--bogus"], "bogus is not a recognized option"),
        (
            ["--list", "--create"],
            (
                "Command must include exactly one action: --list, --describe, --create, --alter or "
                "--delete"
            ),
        ),
        (["--create", "--bootstrap-server", "x:1"], 'Missing required argument "[topic]"'),
        (
            ["--alter", "--bootstrap-server", "x:1", "--topic", "a"],
            'Missing required argument "[partitions]"',
        ),
        (
            ["--list", "--bootstrap-server", "x:1", "--partitions", "2"],
            'Option "[partitions]" can\'t be used with option "[list]"',
        ),
        (["--describe", "--bootstrap-server"], "Option bootstrap-server requires an argument"),
        (
            [
                "--alter",
                "--bootstrap-server",
                "x:1",
                "--topic",
                "a",
                "--partitions",
                "4",
                "--config",
                "a=b",
            ],
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
            '"[alter]" '
            "(To alter topic configurations, the kafka-configs tool can be used.)",
        ),
    ],
)
def test_arguments_refused_on_stderr(tool: Tool, words: list[str], first_line: str) -> None:
    code, out, err = tool(topics.run, *words)
    assert (code, out, err.splitlines()[0]) == (1, "", first_line)


def test_the_version_is_kafkas(tool: Tool) -> None:
    assert tool(topics.run, "--version") == (0, "4.3.0\n", "")


def test_settings_of_a_topic(kafka_topics: Tool, kafka_configs: Tool, tmp_path: Path) -> None:
    kafka_topics("--create", "--topic", "set")
    of_topic = ("--entity-type", "topics", "--entity-name", "set")
    done = (0, "Completed updating config for topic set.\n", "")
    assert kafka_configs("--describe", *of_topic) == (0, "Dynamic configs for topic set are:\n", "")
    assert (
        kafka_configs(
            "--alter",
            *of_topic,
            "--add-config",
            "retention.ms=1000,cleanup.policy=[compact,delete]",
        )
        == done
    )
    assert kafka_configs("--describe", "--topic", "set") == (
        0,
        "Dynamic configs for topic set are:\n"
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=1000 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}\n",
        "",
    )
    assert (
        kafka_configs("--alter", *of_topic, "--delete-config", "retention.ms, cleanup.policy")
        == done
    )
    file = tmp_path / "add.properties"
    file.write_text("retention.ms = 5000\n")
    assert kafka_configs("--alter", *of_topic, "--add-config-file", str(file)) == done
    assert (
        "  retention.ms=5000 sensitive=false" in kafka_configs("--describe", *of_topic, "--all")[1]
    )
    assert kafka_configs("--describe", "--topic", "nope") == (
        0,
        "The topic 'nope' doesn't exist and doesn't have dynamic config.\n",
        "",
    )


def test_settings_of_brokers(kafka_configs: Tool) -> None:
    name = "message.max.bytes"
    assert kafka_configs("--alter", "--broker", "1", "--add-config", f"{name}=2000000") == (
        0,
        "Completed updating config for broker 1.\n",
        "",
    )
    done = (0, "Completed updating default config for brokers in the cluster.\n", "")
    assert kafka_configs("--alter", "--broker-defaults", "--add-config", f"{name}=2000001") == done
    code, out, err = kafka_configs("--describe", "--entity-type", "brokers")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [
        "Dynamic configs for broker 1 are:",
        f"  {name}=2000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{name}=2000000, "
        f"DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=2000001, DEFAULT_CONFIG:{name}=1048588}}",
        "Default configs for brokers in the cluster are:",
    ]
    assert (
        f"  {name}=2000001 sensitive=false "
        f"synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=2000001}}"
    ) in out.splitlines()
    assert (
        kafka_configs(
            "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", name
        )
        == done
    )
    assert kafka_configs("--alter", "--broker", "1", "--delete-config", name)[0] == 0


def test_settings_of_a_group(kafka_configs: Tool) -> None:
    name, broker = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    of_group = ("--entity-type", "groups", "--entity-name", "readers")
    assert kafka_configs("--describe", *of_group) == (
        0,
        "The group 'readers' doesn't exist and doesn't have dynamic config.\n",
        "",
    )
    done = (0, "Completed updating config for group readers.\n", "")
    assert kafka_configs("--alter", *of_group, "--add-config", f"{name}=50000") == done
    described = (
        0,
        "Dynamic configs for group readers are:\n"
        f"  {name}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{name}=50000, "
        f"DEFAULT_CONFIG:{broker}=45000}}\n",
        "",
    )
    assert kafka_configs("--describe", "--group", "readers") == described
    assert kafka_configs("--describe", "--entity-type", "groups") == described
    code, out, err = kafka_configs("--describe", *of_group, "--all")
    interval = (
        "consumer.heartbeat.interval.ms=5000 sensitive=false "
        "synonyms={DEFAULT_CONFIG:group.consumer.heartbeat.interval.ms=5000}"
    )
    assert (code, out.splitlines()[0], err) == (0, "All configs for group readers are:", "")
    assert f"  {interval}" in out.splitlines()
    assert kafka_configs("--alter", *of_group, "--delete-config", name) == done
    assert kafka_configs("--describe", "--entity-type", "groups") == (0, "", "")


def test_a_setting_of_a_group_that_the_broker_refuses(kafka_configs: Tool) -> None:
    code, out, err = kafka_configs(
        "--alter", "--group", "readers", "--add-config", "consumer.session.timeout.ms=1"
    )
    assert (code, out) == (1, "")
    assert err.splitlines()[1] == (
        "java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        "consumer.session.timeout.ms must be greater than or equal to "
        "group.consumer.min.session.timeout.ms"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--describe"], "At least one entity type must be specified"),
        (["--topic", "t"], "Command must include exactly one action: --describe, --alter"),
        (
            ["--alter", "--topic", "t"],
            (
                "At least one of --add-config, --add-config-file, or --delete-config must be "
                "specified with --alter"
            ),
        ),
        (
            ["--describe", "--broker", "x"],
            "The entity name for brokers must be a valid integer broker id, but it is: x",
        ),
        (
            ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
            "An entity name must be specified with --alter of topics",
        ),
        (
            ["--alter", "--entity-type", "groups", "--entity-default", "--add-config", "a=b"],
            "An entity name must be specified with --alter of groups",
        ),
        (
            ["--describe", "--entity-type", "groups", "--entity-default"],
            "--entity-default must not be specified with --describe of groups",
        ),
        (
            ["--alter", "--topic", "t", "--add-config", "retention.ms"],
            "requirement failed: Invalid entity config: all configs to be added must be in the "
            'format "key=val" or  "key=[val1,val2]" '
            "to group values which contain commas.",
        ),
        (
            ["--describe", "--entity-type", "foos"],
            "Invalid entity type foos, the entity type must be one of topics, clients, users, "
            "brokers, ips, client-metrics, groups, "
            "broker-loggers with a --bootstrap-server or --bootstrap-controller argument",
        ),
    ],
)
def test_settings_refused_in_kafkas_words(
    kafka_configs: Tool, words: list[str], reason: str
) -> None:
    code, out, err = kafka_configs(*words)
    assert (code, out, err.splitlines()[0]) == (1, "", reason)


def test_a_setting_that_the_broker_refuses(
    kafka_topics: Tool, kafka_configs: Tool, bootstrap: str
) -> None:
    kafka_topics("--create", "--topic", "picky")
    words = ("--alter", "--topic", "picky", "--add-config", "retention.ms=abc")
    code, out, err = kafka_configs(*words)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        (
            f"Error while executing config command with args '--bootstrap-server {bootstrap} "
            f"{' '.join(words)}'"
        ),
        "java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--bootstrap-server", "x:1"], "Missing required option(s): election-type"),
        (["--election-type", "preferred"], "Missing required option(s): bootstrap-server"),
        (
            ["--bootstrap-server", "x:1", "--election-type", "preferred"],
            (
                "One and only one of the following options is required: topic, "
                "all-topic-partitions, "
                "path-to-json-file"
            ),
        ),
        (
            ["--bootstrap-server", "x:1", "--election-type", "preferred", "--topic", "t"],
            "Missing required option(s): partition",
        ),
        (
            ["--bootstrap-server", "x:1", "--election-type", "bad", "--all-topic-partitions"],
            "Cannot parse argument 'bad' of option election-type",
        ),
        (
            [
                "--bootstrap-server",
                "x:1",
                "--election-type",
                "preferred",
                "--all-topic-partitions",
                "--partition",
                "1",
            ],
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_elections_refused_in_kafkas_words(tool: Tool, words: list[str], reason: str) -> None:
    assert tool(leader_election.run, *words) == (1, "", f"{reason}\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Replica election data is empty"),
        ("{}", 'Replica election data is missing "partitions" field'),
        (
            '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 1}]}',
            "Replica election data contains duplicate partitions: [a-1]",
        ),
    ],
)
def test_a_file_of_partitions_is_checked(
    tool: Tool, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(text)
    words = (
        "--bootstrap-server",
        "x:1",
        "--election-type",
        "unclean",
        "--path-to-json-file",
        str(file),
    )
    assert tool(leader_election.run, *words) == (1, "", f"{reason}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["describe"],
            "One of --status or --replication must be specified with describe sub-command",
        ),
        (
            ["describe", "--status", "--replication"],
            "Only one of --status or --replication should be specified with describe sub-command",
        ),
        (
            ["describe", "--status", "--human-readable"],
            "The option --human-readable is only supported along with --replication",
        ),
        ([], "kafka-metadata-quorum: error: too few arguments"),
    ],
)
def test_quorum_arguments_refused_in_kafkas_words(
    tool: Tool, words: list[str], reason: str
) -> None:
    code, out, err = tool(metadata_quorum.run, "--bootstrap-server", "x:1", *words)
    assert (code, out, err.splitlines()[-1]) == (1, "", reason)


def properties(tmp_path: Path, port: int = 9092, node_id: int = 1) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0\n"
    )
    return file


def test_storage_from_nothing_to_formatted(tool: Tool, tmp_path: Path) -> None:
    config = ("-c", str(properties(tmp_path)))
    a, b = tmp_path / "a", tmp_path / "b"
    assert tool(storage.run, "info", *config) == (
        1,
        f"Found problems:\n  {a} does not exist\n  {b} does not exist\n\n",
        "",
    )
    code, out, err = tool(storage.run, "format", *config, "-t", CLUSTER_ID, "--standalone")
    assert (code, err) == (0, "")
    assert f"Formatting data directory {b} with metadata.version 4.3-IV0.\n" in out
    code, out, err = tool(storage.run, "info", *config)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        rf"Found log directories:\n  {a}\n  {b}\n\n"
        r"Found metadata: "
        rf"\{{cluster\.id={CLUSTER_ID}, directory\.id=\S{{22}}, node\.id=1, version=1\}}\n\n",
        out,
    )
    again = ("format", *config, "-t", CLUSTER_ID, "--standalone")
    reason = (
        "is already formatted. Use --ignore-formatted to ignore this directory and format "
        "the others.\n"
    )
    assert tool(storage.run, *again) == (1, "", f"Log directory {a} {reason}")
    assert tool(storage.run, *again, "-g") == (
        0,
        "All of the log directories are already formatted.\n",
        "",
    )


def test_random_uuids_are_uuids(tool: Tool) -> None:
    texts = {tool(storage.run, "random-uuid")[1] for _ in range(100)}
    assert len(texts) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", text) for text in texts)


def test_storage_arguments_refused(tool: Tool, tmp_path: Path) -> None:
    assert tool(storage.run)[2].endswith("kafka-storage: error: too few arguments\n")
    config = ("-c", str(properties(tmp_path)), "-t", CLUSTER_ID)
    assert tool(storage.run, "format", *config, "-I", "1@a:1:x") == (
        1,
        "",
        (
            "--initial-controllers cannot be used: Penstock's quorum is fixed. Set "
            "controller.quorum.voters\n"
        ),
    )
    assert tool(storage.run, "format", *config, "-r", "3.9", "-s")[0] == 1
    assert tool(storage.run, "format", "-c", str(tmp_path / "nothere"), "-t", CLUSTER_ID)[0] == 1


def script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def run_script(
    name: str, *words: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script(name), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )


def test_a_server_started_in_the_background_is_stopped_by_its_id_alone(tmp_path: Path) -> None:
    port = free_port()
    file = properties(tmp_path, 1, node_id=7)
    logs = tmp_path / "logs"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "LOG_DIR": str(logs)}
    assert (
        run_script("kafka-server-stop.sh", environment=environment).stdout
        == "No kafka server to stop\n"
    )
    assert (
        run_script(
            "kafka-storage.sh",
            "format",
            "-s",
            "-c",
            str(file),
            "-t",
            CLUSTER_ID,
            environment=environment,
        ).returncode
        == 0
    )
    override = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    started = run_script(
        "kafka-server-start.sh",
        "-daemon",
        str(file),
        "--override",
        override,
        environment=environment,
    )
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    output = logs / "kafkaServer.out"
    wait(lambda: f"ready bootstrap.servers=127.0.0.1:{port}" in output.read_text())
    (entry,) = (tmp_path / f"penstock-servers-{os.getuid()}").glob("*.json")
    pid = int(entry.stem)
    try:
        assert (
            run_script("kafka-server-stop.sh", "--node-id=8", environment=environment).returncode
            == 0
        )
        assert (
            run_script(
                "kafka-server-stop.sh", "--process-role=broker", environment=environment
            ).returncode
            == 0
        )
        listed = run_script(
            "kafka-topics.sh",
            "--bootstrap-server",
            f"127.0.0.1:{port}",
            "--list",
            environment=environment,
        )
        assert (listed.returncode, listed.stdout) == (0, "\n")
        both = run_script(
            "kafka-server-stop.sh", "--node-id=7", "--process-role=broker", environment=environment
        )
        assert both.returncode == 0
        assert both.stdout == (
            "When both node-id and process-role are provided, the value for node-id will take "
            "precedence\n"
        )
        wait(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    stopped = run_script("kafka-server-stop.sh", environment=environment)
    assert (stopped.returncode, stopped.stdout) == (1, "No kafka server to stop\n")


def test_a_server_that_cannot_start_says_why(tmp_path: Path, tool: Tool) -> None:
    code, out, err = tool(server_start, str(tmp_path / "nothere.properties"))
    assert (code, out) == (1, "")
    assert "nothere.properties" in err
    assert tool(server_start)[0] == 1


def test_the_stop_script_refuses_what_is_no_signal(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNAL", "HELLO")
    assert tool(server_stop.run) == (1, "", "SIGNAL=HELLO is no signal\n")


@pytest.mark.parametrize(
    "name",
    [
        "topics",
        "storage",
        "server-start",
        "server-stop",
        "configs",
        "leader-election",
        "metadata-quorum",
    ],
)
def test_every_script_is_installed(name: str) -> None:
    assert shutil.which(script(f"kafka-{name}.sh")) is not None


@pytest.mark.parametrize(
    ("text", "parsed"), [(None, []), ("1:2,2:3", [[1, 2], [2, 3]]), ("5", [[5]])]
)
def test_assignments(text: str | None, parsed: list[list[int]]) -> None:
    assert topics.parse_assignment(text) == parsed


def test_assignments_that_are_none() -> None:
    with pytest.raises(Refused, match="For input string"):
        topics.parse_assignment("1:a")


def test_added_settings() -> None:
    assert configs.parse_added("a=1,b=[x,y=z],c=") == {"a": "1", "b": "x,y=z", "c": ""}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
