"""make demo: what is built so far, at work. Three brokers take payments from a Kafka client; one is killed with kill -9; nothing is lost.

It grows with every issue; the Spark pipeline and the console will join it here.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Message, Producer

TOPIC = "payments"
PAYMENTS = 60_000
BIN = Path(sys.executable).parent


class Cluster:
    """`penstock up --brokers 3` in a process of its own, which ends with this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        command = [str(BIN / "penstock"), "up", "--brokers", "3", "--port", str(_free_port()), "--dir", str(directory)]
        started = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line.startswith("ready "):
            raise SystemExit("the cluster did not start: see its line above")
        self.bootstrap_servers = line.partition("=")[2]
        print(f"   {line}\n   … after {(time.perf_counter() - started) * 1000:.0f} ms", flush=True)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def _free_port() -> int:
    """The first of three, of which the next two are free as well, as nearly all are."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return min(port, 65_000)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        say("1. Three brokers, in one word (penstock up --brokers 3):")
        cluster = Cluster(Path(directory) / "data")
        try:
            play(cluster)
        finally:
            cluster.stop()


def play(cluster: Cluster) -> None:
    where = ["--bootstrap-server", cluster.bootstrap_servers]
    topic = [*where, "--topic", TOPIC]
    say("2. A topic with three copies of each partition, by Kafka's own command:")
    show("kafka-topics.sh", "--create", *topic, "--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    show("kafka-topics.sh", "--describe", *topic)

    say("3. confluent-kafka, unmodified, produces payments; broker 1 is killed with kill -9 in the midst of it:")
    acknowledged = produce(cluster)
    show("kafka-topics.sh", "--describe", *topic)

    say("4. The broker comes back, catches up, and leads again what it led:")
    show("penstock", "nodes", "restart", "1", "--dir", str(cluster.directory))
    while run("kafka-topics.sh", "--describe", "--under-replicated-partitions", *where).strip():
        time.sleep(0.1)
    show("penstock", "elect-leaders", *where)
    show("kafka-topics.sh", "--describe", *topic)

    say("5. Everything is read back (penstock consume):")
    check(consume(where), acknowledged)

    say("6. The files are Kafka's own (penstock log dump):")
    last = sorted(cluster.directory.rglob(f"{TOPIC}-0/*.log"))[-1]
    lines = run("penstock", "log", "dump", "--records", str(last)).splitlines()
    print("\n".join(f"   {line[:140]}" for line in [*lines[:3], "…", lines[-1]]))


def produce(cluster: Cluster) -> dict[str, str]:
    """The value of every payment that was acknowledged, by its place."""
    acknowledged: dict[str, str] = {}
    times: list[float] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged[f"{message.partition()}@{message.offset()}"] = (message.value() or b"").decode()
            times.append(time.perf_counter())

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for number in range(PAYMENTS):
        payment = {"id": number, "card": f"card-{random.randrange(100)}", "euros": random.randrange(1, 50_000) / 100}
        producer.produce(TOPIC, json.dumps(payment).encode(), key=str(payment["card"]).encode(), on_delivery=delivered)
        producer.poll(0.001 if number % 50 == 0 else 0)
        if number == PAYMENTS // 2:
            run("penstock", "nodes", "kill", "1", "--dir", str(cluster.directory))
            print(f"   killed after {len(acknowledged):,} acknowledgements")
    if producer.flush(30):
        raise SystemExit("   some payments were never acknowledged")
    gap = max(after - before for before, after in pairwise(times))
    print(
        f"   {PAYMENTS:,} sent, {len(acknowledged):,} acknowledged; the longest pause between two acknowledgements was {gap * 1000:.0f} ms"
    )
    return acknowledged


def consume(where: list[str]) -> list[dict[str, object]]:
    lines = run("penstock", "consume", TOPIC, "--from-beginning", "--exit-at-end", "--json", *where).splitlines()
    return [json.loads(line) for line in lines]


def check(records: list[dict[str, object]], acknowledged: dict[str, str]) -> None:
    found = {f"{record['partition']}@{record['offset']}": str(record["value"]) for record in records}
    lost = [place for place, value in acknowledged.items() if found.get(place) != value]
    payments = [json.loads(value) for value in found.values()]
    twice = len(payments) - len({payment["id"] for payment in payments})
    if lost or twice or len(payments) < PAYMENTS:
        raise SystemExit(f"   {len(lost)} acknowledged payments are lost, {twice} are there twice, {len(payments)} of {PAYMENTS} are there")
    print(f"   all {PAYMENTS:,} payments are there, each once, worth {sum(payment['euros'] for payment in payments):,.2f} EUR")


def say(line: str) -> None:
    print(f"\n{line}", flush=True)


def run(command: str, *arguments: str) -> str:
    return subprocess.run([BIN / command, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def show(command: str, *arguments: str) -> None:
    print("\n".join(f"   {line}" for line in run(command, *arguments).splitlines()), flush=True)


if __name__ == "__main__":
    main()
