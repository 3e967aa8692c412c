"""The examples of README.md and docs/SPARK.md run in order, and references of documents exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock

ROOT = Path(__file__).parent.parent


def examples(document: str, heading: str) -> list[tuple[str, str]]:
    """Return the Python examples of a document with the headings before them."""
    pattern = rf"^{heading} ([^\n]+)\n(?:[^#]*?)```python\n(.*?)```"
    return re.findall(pattern, (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


EXAMPLES = examples("README.md", "###")
SPARK_EXAMPLES = examples("docs/SPARK.md", "##")


def test_the_readme_has_these_examples() -> None:
    names = [name for name, _ in EXAMPLES]
    assert names == [
        "confluent-kafka",
        "Transactions",
        "kafka-python",
        "Spark",
        "In a test",
        "Secure",
    ]


# One test, because later examples read what earlier ones produced. Spark needs the worker that has
# the Spark session.
@pytest.mark.xdist_group("spark")
def test_the_examples_run_in_order() -> None:
    with penstock.Cluster() as cluster:
        for name, example in EXAMPLES:
            code = example.replace("localhost:9092", cluster.bootstrap_servers)
            exec(compile(code, f"README.md, {name}", "exec"), {})


def consume(servers: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return the committed records: more than `count` if there are more within a second."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=30) + consumer.consume(1, timeout=1)
    consumer.close()
    return sorted((message.key(), message.value()) for message in messages)


@pytest.mark.xdist_group("spark")
def test_the_examples_for_spark_write_every_result_once(tmp_path: Path) -> None:
    assert [name for name, _ in SPARK_EXAMPLES] == ["Exactly once", "foreachBatch", "Update mode"]
    with penstock.Cluster({"num.partitions": "1"}) as cluster:
        servers = cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        orders = [(b"ann", b"paid 1"), (b"ann", b"open 2"), (b"bob", b"paid 3")]
        for key, value in orders:
            producer.produce("orders", key=key, value=value)
        assert producer.flush(60) == 0
        for name, example in SPARK_EXAMPLES:
            code = example.replace("localhost:9092", servers)
            code = code.replace('"checkpoints/', f'"{tmp_path}/')
            program = compile(code, f"docs/SPARK.md, {name}", "exec")
            exec(program, {})
            # A second run continues from the checkpoint and has nothing to write.
            exec(program, {})
        assert consume(servers, "paid-orders", 2) == [orders[0], orders[2]]
        for topic in ("orders-here", "orders-there"):
            assert consume(servers, topic, 3) == sorted(orders)
        assert consume(servers, "orders-per-customer", 2) == [(b"ann", b"2"), (b"bob", b"1")]


def test_targets_and_files_that_documents_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/SPARK.md"):
        document = ROOT / name
        text = document.read_text()
        for target in set(re.findall(r"make ([a-z][a-z-]+)", text)):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (document.parent / link).exists(), link
