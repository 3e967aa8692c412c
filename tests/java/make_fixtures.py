"""Create tests/fixtures/kafka-4.3: a log directory of Apache Kafka 4.3.0 after a clean shutdown,
and the records that its clients read from it.

Run from the project's root: python -m tests.java.make_fixtures. Needs a JDK, Maven (for the first
run) and confluent-kafka. Kafka chooses topic ids, producer ids and some timestamps, so a second run
creates an equivalent directory, not an identical one.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.java.kafka_jars import KAFKA_VERSION, ROOT, JavaError, compile_java, run_java, say
from tests.java.kafka_node import KafkaNode

TARGET = ROOT / "tests" / "fixtures" / "kafka-4.3"
MAX_TOTAL_BYTES = 1_500_000
CLEAN_TIMEOUT_S = 60
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "0",
    "metadata.log.max.snapshot.interval.ms": "3600000",
    "metadata.max.idle.interval.ms": "0",
}


def write_topics(node: KafkaNode) -> str:
    classes = compile_java("WriteTopics")
    node.start()
    say("writing topics with Kafka's own producer")
    run_java("WriteTopics", node.bootstrap, "first", classes=classes)
    say("writing raw snappy with librdkafka")
    write_with_librdkafka(node.bootstrap)
    wait_until_compacted(node.data / "cleaner-offset-checkpoint")
    say("restarting the broker, for a second leader epoch")
    node.stop()
    node.start()
    run_java("WriteTopics", node.bootstrap, "second", classes=classes)
    say("reading everything back with Kafka's own consumer")
    seen = run_java("ReadTopics", node.bootstrap, classes=compile_java("ReadTopics"))
    node.stop()
    return seen


def write_with_librdkafka(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": "snappy",
            "linger.ms": 10_000,
            "enable.idempotence": False,
        }
    )
    for batch in range(3):
        for i in range(20):
            producer.produce(
                "snappy-librdkafka",
                partition=0,
                key=None if i == 3 else f"key-{i}".encode(),
                value=None if i == 4 else f"librdkafka {batch} {i} ".encode() * 20,
                timestamp=1_700_000_000_000 + batch * 1000 + i,
                headers=[("client", b"librdkafka"), ("empty", None)] if i == 5 else [],
            )
        if producer.flush(30) != 0:
            raise JavaError("librdkafka could not write to Apache Kafka within 30 s")


def wait_until_compacted(checkpoint: Path) -> None:
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while not (checkpoint.exists() and "compacted 0" in checkpoint.read_text()):
        if time.monotonic() > deadline:
            raise JavaError(
                f"Kafka's cleaner had not cleaned the compacted topic after {CLEAN_TIMEOUT_S} s"
            )
        time.sleep(0.2)


def keep(data: Path, seen: str) -> None:
    """Replace the fixture with the log directory and the records read from it."""
    lines = [json.loads(line) for line in seen.splitlines()]
    partitions = [line["partition"] for line in lines if "partition" in line]
    records = [
        json.dumps(line["record"], ensure_ascii=False) + "\n" for line in lines if "record" in line
    ]
    if TARGET.exists():
        shutil.rmtree(TARGET)
    shutil.copytree(data, TARGET / "data", ignore=shutil.ignore_patterns(".lock"))
    (TARGET / "partitions.json").write_text(
        json.dumps({"kafka": KAFKA_VERSION, "partitions": partitions}, indent=1) + "\n"
    )
    (TARGET / "records.jsonl.gz").write_bytes(
        gzip.compress("".join(records).encode(), compresslevel=9, mtime=0)
    )
    total = sum(path.stat().st_size for path in TARGET.rglob("*") if path.is_file())
    say(
        f"{TARGET.relative_to(ROOT)}: {len(partitions)} partitions, {len(records)} records, "
        f"{total} bytes"
    )
    if total > MAX_TOTAL_BYTES:
        raise JavaError(
            f"the fixture has {total} bytes, more than {MAX_TOTAL_BYTES}: was the shutdown clean?"
        )


def main() -> int:
    if importlib.util.find_spec("confluent_kafka") is None:
        say(
            "make_fixtures: confluent-kafka is not installed; install it (pip install "
            "confluent-kafka) to write librdkafka's snappy"
        )
        return 1
    with tempfile.TemporaryDirectory(prefix="penstock-fixtures-") as directory:
        node: KafkaNode | None = None
        try:
            say(f"formatting and starting Apache Kafka {KAFKA_VERSION}")
            node = KafkaNode(Path(directory), SETTINGS)
            keep(node.data, write_topics(node))
        except JavaError as error:
            say(f"make_fixtures: {error}")
            return 1
        finally:
            if node is not None:
                node.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
