"""What the methods of a test cluster do, seen by a client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from penstock.testing.clients import ClientConfigs
from penstock.testing.cluster import ProcessCluster
from penstock.testing.host_process import ClusterError

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").restore()


def produce(cluster: ProcessCluster, topic: str, *values: bytes, **settings: object) -> list[str]:
    """Write records, and return the errors of those that could not be written."""
    errors: list[str] = []
    configs = ClientConfigs(cluster.bootstrap_servers, "unused").confluent.producer(
        {name.replace("_", "."): value for name, value in settings.items()}
    )
    producer = Producer(configs)

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            errors.append(error.name())

    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    if producer.flush(WITHIN_S):
        logs = "\n".join(f"broker {node}: {cluster.log(node)[-3000:]}" for node in cluster.alive)
        pytest.fail(f"{topic} has the leader {cluster.leader(topic)}; {logs}")
    return errors


def consume(cluster: ProcessCluster, topic: str, count: int, more_s: float = 0.0) -> list[bytes]:
    configs = ClientConfigs(cluster.bootstrap_servers, "unused")
    consumer = Consumer(configs.confluent.consumer())
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=WITHIN_S)
    if more_s:
        messages += consumer.consume(1, timeout=more_s)
    consumer.close()
    return [message.value() or b"" for message in messages]


def test_a_topic_is_new_and_works(cluster: ProcessCluster) -> None:
    first, second = cluster.create_topic(), cluster.create_topic(partitions=3)
    assert first != second
    assert produce(cluster, first, b"one", b"two") == []
    assert consume(cluster, first, 2) == [b"one", b"two"]
    cluster.delete_topics(first, second, "never-created")
    assert cluster.create_topic(first) == first
    assert produce(cluster, first, b"three") == []
    assert consume(cluster, first, 1) == [b"three"]


def test_a_failed_request_is_not_handled_and_its_client_retries(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    fault = cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert produce(cluster, topic, b"one") == []
    assert fault.uses == 2
    assert consume(cluster, topic, 1, more_s=0.2) == [b"one"]


def test_an_error_that_is_not_retriable_reaches_the_client(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    with cluster.fail("Produce", "MESSAGE_TOO_LARGE"):
        assert produce(cluster, topic, b"one") == ["MSG_SIZE_TOO_LARGE"]
    assert produce(cluster, topic, b"two") == []
    assert consume(cluster, topic, 1) == [b"two"]


def test_a_delay_delays_responses_until_it_is_removed(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    assert produce(cluster, topic, b"zero") == []
    began = time.monotonic()
    with cluster.delay("Produce", 400) as fault:
        assert produce(cluster, topic, b"one") == []
        assert time.monotonic() - began >= 0.4
        assert fault.uses == 1
    began = time.monotonic()
    assert produce(cluster, topic, b"two") == []
    assert fault.uses == 1
    assert consume(cluster, topic, 3) == [b"zero", b"one", b"two"]


@pytest.mark.parametrize(("idempotent", "written"), [("true", 1), ("false", 2)])
def test_a_lost_response_makes_a_producer_without_idempotence_write_twice(
    cluster: ProcessCluster, idempotent: str, written: int
) -> None:
    topic = cluster.create_topic()
    fault = cluster.disconnect("Produce", after=True)
    assert produce(cluster, topic, b"one", enable_idempotence=idempotent) == []
    assert fault.uses == 1
    assert consume(cluster, topic, written, more_s=0.2) == [b"one"] * written


def test_a_refused_request_is_not_handled(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    fault = cluster.disconnect("Produce")
    assert produce(cluster, topic, b"one", enable_idempotence="false") == []
    assert fault.uses == 1
    assert consume(cluster, topic, 1, more_s=0.2) == [b"one"]


def test_faults_do_not_reach_the_cluster_object(cluster: ProcessCluster) -> None:
    with cluster.fail("Metadata", "UNKNOWN_SERVER_ERROR"), cluster.disconnect("CreateTopics"):
        assert cluster.leader(cluster.create_topic()) == 1


def test_a_killed_broker_keeps_its_port_and_its_records(cluster: ProcessCluster) -> None:
    topic, servers = cluster.create_topic(), cluster.bootstrap_servers
    assert produce(cluster, topic, b"one") == []
    cluster.kill(1)
    assert cluster.alive == ()
    assert produce(cluster, topic, b"lost", message_timeout_ms=300) == ["_MSG_TIMED_OUT"]
    cluster.restart(1)
    assert cluster.bootstrap_servers == servers
    assert produce(cluster, topic, b"two") == []
    assert consume(cluster, topic, 2) == [b"one", b"two"]


def test_a_paused_broker_does_not_answer_and_continues(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    cluster.pause(1)
    assert produce(cluster, topic, b"late", message_timeout_ms=300) == ["_MSG_TIMED_OUT"]
    cluster.resume(1)
    assert produce(cluster, topic, b"one") == []


def test_restore_undoes_everything(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic()
    cluster.fail("Produce", "MESSAGE_TOO_LARGE")
    cluster.kill(1)
    cluster.restore()
    assert cluster.alive == (1,)
    assert produce(cluster, topic, b"one") == []


def test_wrong_arguments_are_refused_with_the_reason(cluster: ProcessCluster) -> None:
    with pytest.raises(ValueError, match="no API of Kafka"):
        cluster.delay("Prodcue", 10)
    with pytest.raises(KeyError):
        cluster.fail("Produce", "NO_SUCH_ERROR")
    with pytest.raises(ValueError, match="no broker 2"):
        cluster.kill(2)
    with pytest.raises(ValueError, match="no two groups"):
        cluster.partition(1)
    with pytest.raises(ValueError, match="at least once"):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=0)
    with pytest.raises(ValueError, match="1 to 20 brokers"):
        ProcessCluster(brokers=0)


def test_a_setting_that_a_broker_refuses_is_in_the_error() -> None:
    with pytest.raises(ClusterError, match=r"num\.partitions"):
        ProcessCluster({"num.partitions": "none"}).start()


def test_a_broker_that_ends_by_itself_is_reported_at_the_latest_when_the_cluster_stops() -> None:
    cluster = ProcessCluster().start()
    (node,) = [pid for pid in pids_with(str(cluster.directory)) if "penstock-1" in name_of(pid)]
    os.kill(int(node), signal.SIGKILL)
    cluster.wait_until(lambda: not Path(f"/proc/{node}").exists())
    with pytest.raises(ClusterError, match="node 1 is not running"):
        cluster.stop()
    assert not cluster.directory.exists()
    assert pids_with(str(cluster.directory)) == []


def test_settings_reach_the_brokers() -> None:
    with ProcessCluster({"num.partitions": "4"}) as cluster:
        topic = cluster.create_topic(partitions=-1)
        assert len(cluster.admin.partitions(topic)) == 4


def test_a_cluster_ends_with_its_process(tmp_path: Path) -> None:
    """Also if that is killed: no broker is left behind."""
    program = tmp_path / "holds_a_cluster.py"
    program.write_text(
        "import sys\n"
        "from penstock.testing import ProcessCluster\n"
        "cluster = ProcessCluster().start()\n"
        "print(cluster.directory, flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert holder.stdout is not None
    directory = holder.stdout.readline().strip()
    assert directory
    nodes = pids_with(directory)
    assert nodes
    holder.kill()
    holder.communicate()
    deadline = time.monotonic() + WITHIN_S
    while pids_with(directory):
        assert time.monotonic() < deadline, "the cluster outlived the process that started it"
        time.sleep(0.05)
    assert not Path(directory).exists()


def pids_with(word: str) -> list[str]:
    """Return the processes whose command line has a word. Forked nodes have that of their host."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in command.read_bytes():
                found.append(command.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def name_of(pid: str) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


@pytest.mark.more
def test_three_brokers_survive_a_leader_a_pause_and_a_cut() -> None:
    with ProcessCluster(brokers=3) as cluster:
        topic = cluster.create_topic(configs={"min.insync.replicas": "2"})
        assert cluster.in_sync(topic) == (1, 2, 3)
        assert produce(cluster, topic, b"one") == []

        killed = cluster.leader(topic)
        cluster.kill(killed)
        assert produce(cluster, topic, b"two") == []
        assert cluster.leader(topic) != killed
        cluster.restart(killed)
        cluster.wait_in_sync(topic)

        paused = cluster.leader(topic)
        cluster.pause(paused)
        assert cluster.wait_new_leader(topic, paused) != paused
        assert produce(cluster, topic, b"three") == []
        cluster.resume(paused)
        cluster.wait_in_sync(topic)

        cut = cluster.leader(topic)
        cluster.partition(cut)
        cluster.wait_new_leader(topic, cut)
        # A broker that is cut off knows of no other leader than itself.
        others = cluster.bootstrap_servers_of(*(node for node in cluster.brokers if node != cut))
        assert produce(cluster, topic, b"four", bootstrap_servers=others) == []
        assert cut not in cluster.in_sync(topic)
        cluster.heal()
        cluster.wait_in_sync(topic)
        assert consume(cluster, topic, 4, more_s=0.5) == [b"one", b"two", b"three", b"four"]

        follower = next(node for node in cluster.brokers if node != cluster.leader(topic))
        cluster.partition([follower], [node for node in cluster.brokers if node != follower])
        cluster.wait_until(lambda: follower not in cluster.in_sync(topic))
        cluster.restore()
        assert cluster.in_sync(topic) == (1, 2, 3)


@pytest.mark.more
def test_three_brokers_count_a_fault_together() -> None:
    with ProcessCluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=6)
        fault = cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=4)
        assert produce(cluster, topic, *(b"%d" % number for number in range(60))) == []
        assert fault.uses == 4
        with cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", broker=2) as of_one:
            third = cluster.create_topic()
            while cluster.leader(third) != 1:
                third = cluster.create_topic()
            assert produce(cluster, third, b"one") == []
            assert of_one.uses == 0
