"""`penstock.Cluster(secure=True)` with kafka-python, aiokafka and confluent-kafka, and every
command of `penstock` and of Kafka with --command-config."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import aiokafka
import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

import penstock
from penstock.cli import COMMANDS, build
from penstock.cli.cluster.layout import free_ports
from penstock.config.meta_properties import MetaProperties, encode_meta_properties
from penstock.ids import NodeId

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.xdist_group("secure_cluster")


class Secure(NamedTuple):
    cluster: penstock.Cluster
    controllers: str
    # A client's properties file, one with a wrong password, and a directory for other files.
    good: str
    wrong: str
    directory: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("clients")
    (port,) = free_ports(1, set())
    controllers = f"127.0.0.1:{port}"
    listeners = f"SASL_SSL://127.0.0.1:0,CONTROLLER://{controllers}"
    settings = {
        "num.partitions": "1",
        "listeners": listeners,
        "connection.failed.authentication.delay.ms": "0",
    }
    with penstock.Cluster(settings, secure=True) as cluster:
        settings = cluster.access.java()
        good, wrong = directory / "client.properties", directory / "wrong.properties"
        good.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        jaas = settings["sasl.jaas.config"].partition(" password=")[0] + ' password="wrong";'
        lines = {**settings, "sasl.jaas.config": jaas}
        wrong.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        producer = Producer(cluster.access.librdkafka())
        producer.produce("t", b"hello")
        assert producer.flush(60) == 0
        del producer  # it would go on after the cluster
        consumer = Consumer(
            {**cluster.access.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        (message,) = consumer.consume(1, timeout=60)
        assert message.value() == b"hello"
        consumer.commit(asynchronous=False)
        consumer.close()
        yield Secure(cluster, controllers, str(good), str(wrong), directory)


# Clients

_IMPATIENT = {"bootstrap_timeout_ms": 1_000}


def test_kafka_python(secure: Secure) -> None:
    access = secure.cluster.access.kafka_python()
    admin = kafka.admin.KafkaAdminClient(**access)
    admin.create_topics([kafka.admin.NewTopic("kafka-python", 1, 1)])
    assert "kafka-python" in admin.list_topics()
    admin.close()
    producer = kafka.KafkaProducer(**access, transactional_id="kafka-python")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("kafka-python", b"1")
    producer.commit_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python",
        **access,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
    )
    assert next(iter(consumer)).value == b"1"
    consumer.close()
    # Over TLS kafka-python sees the end of the connection before the error.
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**{**access, "sasl_plain_password": "wrong"}, **_IMPATIENT)


def test_aiokafka(secure: Secure) -> None:
    access = secure.cluster.access.aiokafka()

    async def use() -> bytes | None:
        admin = aiokafka.admin.AIOKafkaAdminClient(**access)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic("aiokafka", 1, 1)])
        await admin.close()
        producer = aiokafka.AIOKafkaProducer(**access, transactional_id="aiokafka")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("aiokafka", b"1")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            "aiokafka",
            **access,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        message = await asyncio.wait_for(consumer.getone(), 60)
        await consumer.stop()
        refused = aiokafka.AIOKafkaProducer(**{**access, "sasl_plain_password": "wrong"})
        with pytest.raises(aiokafka.errors.KafkaError, match=r"(?i)authentication|bootstrap"):
            await refused.start()
        await refused.stop()
        value: bytes | None = message.value
        return value

    assert asyncio.run(use()) == b"1"


def test_a_cluster_that_is_not_secure_has_plain_configurations() -> None:
    from penstock.security.setup.client_settings import ClientAccess

    access = ClientAccess("a:1,b:2")
    assert access.java() == access.librdkafka() == {"bootstrap.servers": "a:1,b:2"}
    assert access.kafka_python() == {"bootstrap_servers": ["a:1", "b:2"]}
    assert access.aiokafka() == {"bootstrap_servers": "a:1,b:2"}


# Commands

# What each command is called with, before --command-config: it connects, and succeeds or, where a
# text stands behind `->`, fails for a reason that only a client with a login gets to know. A
# command that connects to no cluster has None.
PENSTOCK: dict[str, str | None] = {
    "up": None,
    "start": None,
    "nodes list": None,
    "nodes kill": None,
    "nodes pause": None,
    "nodes resume": None,
    "nodes restart": None,
    "nodes add": None,
    "brokers list": "",
    "brokers drain": "1 -> Start another broker first",
    "brokers undrain": "1",
    "brokers remove": "7 --yes -> 7",
    "rebalance": "",
    "quorum describe": "",
    "quorum add": "--config {controller} -> Static|static|voter|quorum",
    "quorum remove": "7 --yes -> no voter",
    "elect-leaders": "",
    "topics create": "made",
    "topics list": "",
    "topics describe": "t",
    "topics alter": "t --config retention.ms=1000000",
    "topics delete": "made --yes",
    "groups list": "",
    "groups describe": "g --over 0",
    "groups reset-offsets": "g --topic t --to-earliest --yes",
    "groups delete": "nope --yes -> nope",
    "acls list": "",
    "acls create": "User:alice --operation read --topic t",
    "acls delete": "--principal User:alice --yes",
    "users list": "",
    "users set": "alice --password-file {password}",
    "users remove": "alice --yes",
    "quotas list": "",
    "quotas set": None,
    "quotas remove": None,
    "transactions list": "",
    "transactions describe": "nope -> nope",
    "transactions abort": "--topic t --partition 0 --start-offset 0 --yes -> producer|transaction",
    "transactions end": "nope --yes -> no transactions of a sink",
    "transactions find-hanging": "",
    "doctor": "--over 0",
    "top": "--once --json --interval 0.2",
    "produce": "t",
    "consume": "t --from-beginning --max-messages 1",
    "pipeline init": None,
    # These start Spark; tests/spark has one of them with a secure cluster.
    "pipeline validate": None,
    "pipeline run": None,
    "pipeline status": None,
    "sql": None,
    "format": None,
    "log dump": None,
    "profile add": None,
    "profile use": None,
    "profile list": None,
    "profile remove": None,
}


def words_of(text: str, secure: Secure) -> tuple[list[str], str | None]:
    arguments, _arrow, failure = text.partition("->")
    files = {
        "controller": secure.directory / "controller.properties",
        "password": secure.directory / "password",
        "json": secure.directory / "in.json",
    }
    return arguments.format(**files).split(), failure.strip() or None


def write_files(directory: Path) -> None:
    (directory / "password").write_text("alice-secret\n")
    topics = {"topics": [{"topic": "t"}], "version": 1}
    (directory / "in.json").write_text(json.dumps(topics))
    log = directory / "controller"
    log.mkdir(exist_ok=True)
    meta = MetaProperties("none", NodeId(9), UUID(int=2**100))
    (log / "meta.properties").write_bytes(encode_meta_properties(meta))
    (directory / "controller.properties").write_text(
        "process.roles=controller\nnode.id=9\nlisteners=CONTROLLER://127.0.0.1:9\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9\n"
        f"log.dirs={log}\n"
    )


def all_commands() -> list[str]:
    return [f"{noun} {verb}".strip() for noun, verbs in COMMANDS.items() for verb in verbs]


def test_the_table_has_every_command() -> None:
    missing = set(all_commands()) - set(PENSTOCK)
    assert not missing


def test_every_command_of_penstock_takes_the_file_of_a_client(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(secure.directory)
    write_files(secure.directory)
    failures: list[tuple[object, ...]] = []
    for name in all_commands():
        text = PENSTOCK[name]
        if text is None:
            continue
        words, expected = words_of(text, secure)
        command = [*name.split(), *words]
        app = build(command[0])
        done = CliRunner().invoke(app, [*command, "--command-config", secure.good], "hello\n")
        if done.exit_code != 0 if expected is None else not re.search(expected, done.stderr):
            failures.append((name, done.exit_code, done.output, done.stderr, done.exception))
        refused = CliRunner().invoke(app, [*command, "--command-config", secure.wrong], "hello\n")
        refusal = refused.stderr + refused.output
        if refused.exit_code == 0 or "uthenticat" not in refusal:
            failures.append((name, "with a wrong password", refusal))
    assert not failures, "\n".join(map(str, failures))


# Kafka's commands by script. {b} stands for --bootstrap-server and its value.
KAFKA: dict[str, str | None] = {
    "kafka-acls.sh": "{b} --command-config {f} --list",
    "kafka-broker-api-versions.sh": "{b} --command-config {f}",
    "kafka-configs.sh": "{b} --command-config {f} --describe --entity-type topics --entity-name t",
    "kafka-console-consumer.sh": "{b} --command-config {f} --topic t --from-beginning "
    "--max-messages 1",
    "kafka-console-consumer.sh consumer.config": "{b} --consumer.config {f} --topic t "
    "--from-beginning --max-messages 1",
    "kafka-console-producer.sh": "{b} --command-config {f} --topic t",
    "kafka-console-producer.sh producer.config": "{b} --producer.config {f} --topic t",
    "kafka-consumer-groups.sh": "{b} --command-config {f} --list",
    "kafka-consumer-perf-test.sh": "{b} --command-config {f} --topic t --num-records 1",
    "kafka-consumer-perf-test.sh consumer.config": "{b} --consumer.config {f} --topic t "
    "--num-records 1",
    "kafka-delegation-tokens.sh": None,
    "kafka-delete-records.sh": "{b} --command-config {f} --offset-json-file {records}",
    "kafka-dump-log.sh": None,
    "kafka-features.sh": "{b} --command-config {f} describe",
    "kafka-features.sh controller": "{c} --command-config {f} describe",
    "kafka-get-offsets.sh": "{b} --command-config {f} --topic t",
    "kafka-leader-election.sh": "{b} --command-config {f} --election-type preferred "
    "--all-topic-partitions",
    "kafka-leader-election.sh admin.config": "{b} --admin.config {f} --election-type preferred "
    "--all-topic-partitions",
    "kafka-log-dirs.sh": "{b} --command-config {f} --describe",
    "kafka-metadata-quorum.sh": "{b} --command-config {f} describe --status",
    "kafka-metadata-quorum.sh controller": "{c} --command-config {f} describe --status",
    "kafka-acls.sh controller": "{c} --command-config {f} --list",
    "kafka-configs.sh controller": "{c} --command-config {f} --describe --entity-type brokers "
    "--entity-name 1",
    "kafka-producer-perf-test.sh": "{b} --command-config {f} --topic t --num-records 1 "
    "--throughput -1 --record-size 10",
    "kafka-producer-perf-test.sh producer.config": "{b} --producer.config {f} --topic t "
    "--num-records 1 --throughput -1 --record-size 10",
    "kafka-reassign-partitions.sh": "{b} --command-config {f} --generate --broker-list 1 "
    "--topics-to-move-json-file {json}",
    "kafka-reassign-partitions.sh controller": "{c} --command-config {f} --list",
    "kafka-server-start.sh": None,
    "kafka-server-stop.sh": None,
    "kafka-storage.sh": None,
    "kafka-topics.sh": "{b} --command-config {f} --list",
    "kafka-transactions.sh": "{b} --command-config {f} list",
}


def kafka_scripts() -> dict[str, str]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return {name: path for name, path in scripts.items() if name.startswith("kafka-")}


def test_the_table_has_every_script_of_kafka() -> None:
    missing = set(kafka_scripts()) - {name.split()[0] for name in KAFKA}
    assert not missing


def call(run: Callable[[Sequence[str]], int], words: list[str]) -> int:
    try:
        return run(words)
    except SystemExit as exit_:
        return int(exit_.code or 0)


def test_every_command_of_kafka_takes_the_file_of_a_client(
    secure: Secure, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(secure.directory)
    records = secure.directory / "records.json"
    offsets = {"partitions": [{"topic": "t", "partition": 0, "offset": 0}], "version": 1}
    records.write_text(json.dumps(offsets))
    scripts, failures = kafka_scripts(), []
    for name, text in KAFKA.items():
        script = name.split()[0]
        if text is None or script not in scripts:
            continue
        run = import_module(scripts[script].partition(":")[0]).run
        for file, is_good in ((secure.good, True), (secure.wrong, False)):
            words = text.format(
                b=f"--bootstrap-server {secure.cluster.bootstrap_servers}",
                c=f"--bootstrap-controller {secure.controllers}",
                f=file,
                records=records,
                json=secure.directory / "in.json",
            ).split()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
            code = call(run, words)
            printed = capsys.readouterr()
            # As in Kafka, kafka-consumer-groups.sh ends with 0 after an error.
            failed = code != 0 or "Error:" in printed.out
            refused = failed and "uthenticat" in printed.err + printed.out
            if failed if is_good else not refused:
                failures.append((name, code, printed))
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.parametrize(
    ("script", "deprecated"),
    [
        ("console_consumer", "consumer.config"),
        ("console_producer", "producer.config"),
        ("consumer_perf_test", "consumer.config"),
    ],
)
def test_a_deprecated_option_is_refused_beside_the_new_one(
    script: str, deprecated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = import_module(f"penstock.cli.kafka.{script}").run
    words = f"--bootstrap-server a:1 --topic t --num-records 1 --{deprecated} a --command-config b"
    if "console" in script:
        words = words.replace(" --num-records 1", "")
    assert call(run, words.split()) == 1
    expected = f"Options --{deprecated} and --command-config cannot be specified together."
    assert expected in capsys.readouterr().err
