"""make demo: what is built so far, at work. A log takes payments, its process is killed, and nothing that it acknowledged is lost.

It grows with every issue; the broker, the cluster, the Spark pipeline and the console will join it here.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.config.topic import LogConfig
from penstock.ids import NodeId, TopicPartition
from penstock.log.directory import formatted_directory
from penstock.log.store import LogStore
from penstock.records.batch import batches
from penstock.records.build import build_batch
from penstock.records.compression import Codec
from penstock.records.record import read_records
from penstock.world import World
from penstock.world.real import run

PAYMENTS = TopicPartition("payments", 0)
CONFIG = LogConfig(segment_bytes=1_000_000)
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={path}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        path = Path(directory) / "data"
        properties = Path(directory) / "server.properties"
        properties.write_text(PROPERTIES.format(path=path))
        penstock = str(Path(sys.executable).parent / "penstock")

        say("1. A node's directory is formatted, as with kafka-storage.sh:")
        show(penstock, "format", "--standalone", "-c", str(properties))

        say("2. A process appends payments to a partition, and says what is appended:")
        acknowledged = write_until_killed(path)
        print(f"   … killed with kill -9 after {acknowledged:,} payments were acknowledged")

        say("3. The log is opened again:")
        run(lambda world: recover(world, path, acknowledged))

        say("4. Its files are Kafka's own. The last segment, as `penstock log dump` shows it:")
        last = sorted((path / str(PAYMENTS)).glob("*.log"))[-1]
        dump = subprocess.run([penstock, "log", "dump", "--records", str(last)], capture_output=True, text=True, check=True).stdout
        print("\n".join(f"   {line[:150]}" for line in [*dump.splitlines()[:4], "…", dump.splitlines()[-1]]))


def say(line: str) -> None:
    print(f"\n{line}", flush=True)


def show(*command: str) -> None:
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print("\n".join(f"   {line}" for line in printed.splitlines()), flush=True)


def write_until_killed(path: Path) -> int:
    """Half a second of payments. Gives the last end offset that the writer told of."""
    with subprocess.Popen([sys.executable, "-m", "tools.demo", "write", str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline()]
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            told.append(writer.stdout.readline())
        writer.kill()
        told += writer.stdout.read().splitlines(keepends=True)
    return int([line for line in told if line.endswith("\n")][-1])


async def open_payments(world: World, path: Path) -> LogStore:
    store = LogStore(world, [formatted_directory(world.disk, str(path), NodeId(1))])
    await store.open(lambda _partition: CONFIG)
    return store


async def write(world: World, path: Path) -> None:
    store = await open_payments(world, path)
    log = store.create(PAYMENTS, world.chance.uuid(), CONFIG)
    while True:
        payments = [(f"card-{random.randrange(100)}".encode(), f"{random.randrange(1, 50_000) / 100:.2f} EUR".encode()) for _ in range(50)]
        now = world.clock.now_ms()
        batch = build_batch([(card, amount, (("currency", b"EUR"),), now) for card, amount in payments], codec=Codec.ZSTD)
        os.write(1, f"{log.append_as_leader(batch, 0).end_offset}\n".encode())


async def recover(world: World, path: Path, acknowledged: int) -> None:
    started = time.perf_counter()
    log = (await open_payments(world, path)).logs[PAYMENTS]
    print(f"   recovered in {(time.perf_counter() - started) * 1000:.0f} ms: {log.end_offset:,} payments in {len(log.segments)} segment(s)")
    offset, count, euros = 0, 0, 0.0
    while (part := log.read(offset, 1_000_000, below=log.end_offset)) is not None:
        data = part.read()
        amounts = [float((record.value or b"0").split()[0]) for record in read_records(data)]
        count, euros = count + len(amounts), euros + sum(amounts)
        offset = [header.next_offset for _position, header in batches(data)][-1]
    if count < acknowledged:
        raise SystemExit(f"   {acknowledged - count} acknowledged payments are lost")
    print(f"   all {acknowledged:,} acknowledged payments are there ({count:,} were appended), worth {euros:,.2f} EUR")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        run(lambda world: write(world, Path(sys.argv[2])))
    else:
        main()
