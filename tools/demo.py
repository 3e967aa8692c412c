"""make demo: what is built so far, at work. A broker takes payments from a Kafka client, is killed with kill -9, and loses nothing.

It grows with every issue; the cluster, the Spark pipeline and the console will join it here.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Message, Producer

TOPIC = "payments"
PAYMENTS = 60_000
PENSTOCK = str(Path(sys.executable).parent / "penstock")


class Broker:
    """`penstock up` in a process of its own; the second start is on the port of the first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])

    def start(self) -> float:
        """Gives the seconds until it was ready."""
        started = time.perf_counter()
        command = [PENSTOCK, "up", "--port", self._port, "--dir", str(self.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line.startswith("ready "):
            raise SystemExit("the broker did not start: see its line above")
        self.bootstrap_servers = line.partition("=")[2]
        print(f"   {line}", flush=True)
        return time.perf_counter() - started

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            play(broker)
        finally:
            broker.kill()


def play(broker: Broker) -> None:
    say("1. A broker, in one word (penstock up):")
    print(f"   … after {broker.start() * 1000:.0f} ms")
    where = f"--bootstrap-server={broker.bootstrap_servers}"

    say("2. A topic, with Penstock's command (Kafka's own work as well):")
    show("topics", "create", TOPIC, "--partitions", "3", where)
    show("topics", "describe", TOPIC, where)

    say("3. confluent-kafka, unmodified, produces payments; the broker is killed with kill -9 in the midst of it, and started again:")
    acknowledged = produce(broker)

    say("4. Everything is read back (penstock consume):")
    check(consume(where), acknowledged)

    say("5. Its files are Kafka's own (penstock log dump):")
    last = sorted(broker.directory.rglob(f"{TOPIC}-0/*.log"))[-1]
    lines = run("log", "dump", "--records", str(last)).splitlines()
    print("\n".join(f"   {line[:140]}" for line in [*lines[:3], "…", lines[-1]]))


def produce(broker: Broker) -> dict[str, str]:
    """The value of every payment that was acknowledged, by its place."""
    acknowledged: dict[str, str] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged[f"{message.partition()}@{message.offset()}"] = (message.value() or b"").decode()

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "compression.type": "zstd", "log_level": 0}
    )
    for number in range(PAYMENTS):
        payment = {"id": number, "card": f"card-{random.randrange(100)}", "euros": random.randrange(1, 50_000) / 100}
        producer.produce(TOPIC, json.dumps(payment).encode(), key=str(payment["card"]).encode(), on_delivery=delivered)
        if number % 500 == 0:
            producer.poll(0)
        if number == PAYMENTS // 2:
            while not acknowledged:
                producer.poll(0.01)
            broker.kill()
            print(f"   killed after {len(acknowledged):,} acknowledgements")
            print(f"   … ready again after {broker.start() * 1000:.0f} ms")
    if producer.flush(30):
        raise SystemExit("   some payments were never acknowledged")
    print(f"   {PAYMENTS:,} sent, {len(acknowledged):,} acknowledged")
    return acknowledged


def consume(where: str) -> list[dict[str, object]]:
    lines = run("consume", TOPIC, "--from-beginning", "--exit-at-end", "--json", where).splitlines()
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


def run(*arguments: str) -> str:
    return subprocess.run([PENSTOCK, *arguments], capture_output=True, text=True, check=True).stdout


def show(*arguments: str) -> None:
    print("\n".join(f"   {line}" for line in run(*arguments).splitlines()), flush=True)


if __name__ == "__main__":
    main()
