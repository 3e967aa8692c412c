"""The pytest plugin in sessions of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TESTS = """\
import pytest
from confluent_kafka import Consumer, Producer

SEEN = []

@pytest.mark.parametrize("number", range(4))
def test_each_test_has_a_new_topic(number, penstock_topic, penstock_clients):
    assert penstock_topic not in SEEN
    SEEN.append(penstock_topic)
    producer = Producer(penstock_clients.confluent.producer())
    producer.produce(penstock_topic, b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer(penstock_clients.confluent.consumer())
    consumer.subscribe([penstock_topic])
    (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"%d" % number
    consumer.close()

def test_a_test_may_leave_its_broker_dead(penstock_cluster):
    penstock_cluster.fail("Produce", "MESSAGE_TOO_LARGE")
    penstock_cluster.kill(1)

def test_the_next_one_does_not_notice(penstock_cluster, penstock_clients, penstock_topic):
    assert penstock_cluster.alive == (1,)
    producer = Producer(penstock_clients.confluent.producer())
    producer.produce(penstock_topic, b"one")
    assert producer.flush(30) == 0

def test_the_session_has_one_cluster(penstock_session_cluster, penstock_cluster):
    assert penstock_session_cluster is penstock_cluster

@pytest.mark.penstock(settings={"num.partitions": "5"})
def test_a_marker_gives_other_settings(penstock_cluster, penstock_session_cluster):
    assert penstock_cluster is not penstock_session_cluster
    topic = penstock_cluster.create_topic(partitions=-1)
    assert len(penstock_cluster.admin.partitions(topic)) == 5
"""
FOUR_LIBRARIES = """\
import asyncio
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

@pytest.mark.penstock(brokers=3)
def test_three_brokers(penstock_cluster, penstock_topic):
    assert penstock_cluster.brokers == (1, 2, 3)
    assert penstock_cluster.in_sync(penstock_topic) == (1, 2, 3)

def test_kafka_python(penstock_clients, penstock_topic):
    producer = KafkaProducer(**penstock_clients.kafka_python.producer())
    producer.send(penstock_topic, b"one").get(30)
    producer.close()
    consumer = KafkaConsumer(penstock_topic, **penstock_clients.kafka_python.consumer())
    assert next(consumer).value == b"one"
    consumer.close()

def test_aiokafka(penstock_clients, penstock_topic):
    async def main():
        producer = AIOKafkaProducer(**penstock_clients.aiokafka.producer())
        await producer.start()
        await producer.send_and_wait(penstock_topic, b"one")
        await producer.stop()
        consumer = AIOKafkaConsumer(penstock_topic, **penstock_clients.aiokafka.consumer())
        await consumer.start()
        assert (await consumer.getone()).value == b"one"
        await consumer.stop()
    asyncio.run(main())

def test_spark_options(penstock_clients, penstock_topic):
    source = penstock_clients.spark.source(penstock_topic, endingOffsets="latest")
    assert source == {
        "kafka.bootstrap.servers": penstock_clients.bootstrap_servers,
        "subscribe": penstock_topic,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    }
    assert penstock_clients.spark.sink(penstock_topic)["topic"] == penstock_topic
"""


def run_pytest(directory: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in a session that has no other plugins than ours, xdist and pytest's."""
    (directory / "test_other_people.py").write_text(tests)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "penstock.testing.plugin", "--strict-markers"),
            *("-p", "xdist", *arguments, str(directory)),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        },
    )


def test_importing_the_plugin_imports_no_broker_and_no_client() -> None:
    """pytest imports the plugin in every session of an environment that has Penstock."""
    program = (
        "import sys, pytest; before = set(sys.modules); import penstock.testing.plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout.strip() == str(["penstock", "penstock.testing", "penstock.testing.plugin"])


@pytest.mark.more
def test_fixtures_give_clean_state(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS)
    assert "8 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.more
def test_workers_of_xdist_have_clusters_of_their_own(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, "-n", "2")
    assert "8 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.more
def test_the_client_configurations_work(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, FOUR_LIBRARIES)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.more
def test_a_marker_with_unknown_arguments_is_an_error(tmp_path: Path) -> None:
    wrong = TESTS.replace('penstock(settings={"num.partitions": "5"})', "penstock(broker=3)")
    done = run_pytest(tmp_path, wrong, "-k", "marker")
    assert done.returncode != 0
    assert "takes brokers=N and settings" in done.stdout
