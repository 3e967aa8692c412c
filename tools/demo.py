"""make demo: run three brokers, a payments generator and a Spark pipeline; kill a leader and Spark.

Uses the installed commands. Exits with 1 if the audit finds a lost or duplicated payment, or a
balance that is off by a cent.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from penstock.spark.options import OptionError
from penstock.spark.pipeline.checkpoint import QueryCheckpoint, read_checkpoints
from tools.child import Child, running

PAYMENTS = 60_000
RATE = 1_500
TOPIC = "payments"
OUTPUT_TOPICS = ("payments-totals", "payments-alerts", "payments-dead-letters")
QUERIES = ("alerts", "dead-letters", "table", "totals")
WINDOWED = ("table", "totals")
# The end of the last window of the generator's scenario.
LAST_WINDOW_END_MS = datetime(2026, 3, 2, 0, 30, tzinfo=UTC).timestamp() * 1000
DOWNTIME_S = 5.0
BIN = Path(sys.executable).parent
PIPELINE = Path("pipelines/payments/pipeline.py")


class Demo:
    def __init__(self, directory: Path) -> None:
        self.data, self.truth = directory / "data", directory / "truth.json"
        self.checkpoint, self.tables = directory / "checkpoint", directory / "tables"
        self.started_s = time.monotonic()

    def play(self) -> None:
        say("1. Start three brokers (penstock up --brokers 3)")
        up = ["up", "--brokers", "3", "--port", str(free_port()), "--dir", str(self.data)]
        with running(Child(BIN / "penstock", *up)) as cluster:
            self.wait(lambda: bool(cluster.lines), cluster)
            show(cluster.lines[0])
            self.bootstrap = ["--bootstrap-server", cluster.lines[0].partition("=")[2]]

            say("2. Create topics with replication factor 3 (kafka-topics.sh --create)")
            self.create_topics()

            say(
                f"3. Produce {RATE:,} payments per second, process them on Spark (penstock "
                "pipeline run), kill the leader of a partition, kill Spark"
            )
            with running(self.generator()) as generator:
                with running(self.pipeline()) as pipeline:
                    self.kill_leader(generator, pipeline)
                    self.wait(self.is_in_a_batch, generator, pipeline)
                    pipeline.kill()
                show(f"killed the Spark driver and its JVM (kill -9) {self.batches()}")
                with running(self.pipeline()) as pipeline:
                    show("started the pipeline again from its checkpoint")
                    self.wait(lambda: has_queries(pipeline), generator, pipeline)
                    # Spark closes the last windows only if a record comes after its restart.
                    generator.send_line()
                    self.wait(lambda: not generator.running, generator, pipeline)
                    say("4. Wait until Spark's watermark has passed the last window")
                    self.wait(lambda: self.is_drained(sent(generator)), pipeline)
                    pipeline.process.send_signal(signal.SIGINT)
                    self.wait(lambda: not pipeline.running, pipeline)

            say("5. Compare output with input (python -m pipelines.payments.audit)")
            self.audit()

    def create_topics(self) -> None:
        create = [str(BIN / "kafka-topics.sh"), "--create", *self.bootstrap]
        options = ["--partitions", "3", "--replication-factor", "3"]
        options += ["--config", "min.insync.replicas=2"]
        with contextlib.ExitStack() as stack:
            children = [
                stack.enter_context(running(Child(*create, "--topic", topic, *options)))
                for topic in (TOPIC, *OUTPUT_TOPICS)
            ]
            self.wait(lambda: not any(child.running for child in children), *children)
            for child in children:
                child.stop()
                show(*child.lines)

    def pipeline(self) -> Child:
        settings = ["--checkpoint", str(self.checkpoint), "-c", f"tables={self.tables}"]
        return Child(BIN / "penstock", "pipeline", "run", PIPELINE, *self.bootstrap, *settings)

    def generator(self) -> Child:
        scenario = ["--payments", str(PAYMENTS), "--rate", str(RATE), "--customers", "1000"]
        arguments = [*self.bootstrap, *scenario, "--hold", "--truth", str(self.truth)]
        return Child(sys.executable, "-m", "pipelines.payments.generate", *arguments)

    def kill_leader(self, generator: Child, pipeline: Child) -> None:
        """Kill the leader when Spark reads its first batches, and restart it."""
        self.wait(lambda: bool(self.queries()), generator, pipeline)
        leader = re.search(
            r"Partition: 0\s+Leader: (\d+)",
            run("kafka-topics.sh", "--describe", *self.bootstrap, "--topic", TOPIC),
        )
        assert leader is not None
        run("penstock", "nodes", "kill", leader[1], "--dir", str(self.data))
        show(f"killed broker {leader[1]}, the leader of {TOPIC}-0 (kill -9)")
        restart_at = time.monotonic() + DOWNTIME_S
        self.wait(lambda: time.monotonic() > restart_at, generator, pipeline)
        restart = ["nodes", "restart", leader[1], "--dir", str(self.data)]
        with running(Child(BIN / "penstock", *restart)) as child:
            self.wait(lambda: not child.running, generator, pipeline, child)
        show(f"restarted broker {leader[1]}")

    def audit(self) -> None:
        arguments = [*self.bootstrap, "--truth", str(self.truth), "--tables", str(self.tables)]
        with running(Child(sys.executable, "-m", "pipelines.payments.audit", *arguments)) as audit:
            self.wait(lambda: not audit.running)
            audit.stop()
            lines = [line for line in audit.lines if line.startswith(("ok ", "BAD"))]
            show(*(lines or audit.lines[-20:]))
            if audit.process.returncode:
                raise SystemExit("\nThe audit failed: output and input differ.")

    def queries(self) -> dict[str, QueryCheckpoint]:
        """Return the queries that have begun a batch, from Spark's checkpoint."""
        with contextlib.suppress(OptionError):
            return {
                query.name: query
                for query in read_checkpoints(self.checkpoint)
                if query.planned_batch is not None
            }
        return {}

    def is_in_a_batch(self) -> bool:
        """Return True if a query has finished a batch, and one that writes to a topic runs one."""
        queries = self.queries()
        return any(query.committed_batch is not None for query in queries.values()) and any(
            query.committed_batch != query.planned_batch
            for name, query in queries.items()
            if name != "table"
        )

    def batches(self) -> str:
        """Describe the batches that were running."""
        running_batches = [
            f"{name} {query.planned_batch}"
            for name, query in self.queries().items()
            if query.committed_batch != query.planned_batch
        ]
        return f"during batch {', batch '.join(running_batches)}" if running_batches else ""

    def is_drained(self, records: int) -> bool:
        """Return True if every query has read all records, and the watermark of each windowed query
        has passed the last window."""
        queries = self.queries()
        return set(queries) == set(QUERIES) and all(
            query.committed_batch == query.planned_batch
            and sum(query.offsets.values()) == records
            and (name not in WINDOWED or (query.watermark_ms or 0) > LAST_WINDOW_END_MS)
            for name, query in queries.items()
        )

    def wait(self, until: Callable[[], bool], *children: Child) -> None:
        """Wait for a condition, and show the children's progress every three seconds."""
        shown_s = time.monotonic()
        while not until():
            for child in children:
                child.check()
            if time.monotonic() > shown_s + 3:
                shown_s = time.monotonic()
                progress = [text for child in children if (text := self.progress_of(child))]
                show(f"{shown_s - self.started_s:4.0f} s  {'   '.join(progress) or '…'}")
            time.sleep(0.1)
        for child in children:
            child.check()

    def progress_of(self, child: Child) -> str:
        """Summarise the progress of a generator or a pipeline."""
        if match := child.last(r"^(\d+) sent, (\d+) acknowledged"):
            return f"{int(match[1]):,} sent, {int(match[2]):,} acknowledged;"
        if "pipeline" not in child.command:
            return ""
        started = f"({time.monotonic() - child.started_s:.0f} s)"
        if child.last(r"Spark is ready") is None:
            return f"Spark starts {started}"
        if not has_queries(child):
            return f"Spark plans the queries {started}"
        queries = self.queries().values()
        if not queries:
            return f"Spark plans the first batches {started}"
        return f"read by Spark: {', '.join(map(progress_of_query, queries))}"


def progress_of_query(query: QueryCheckpoint) -> str:
    read = f"{query.name} {sum(query.offsets.values()):,}"
    if query.committed_batch == query.planned_batch:
        return read
    return f"{read} (batch {query.planned_batch} runs)"


def has_queries(pipeline: Child) -> bool:
    """Return True if all queries have reported what they do."""
    return all(pipeline.last(rf"^{name}: ") for name in QUERIES)


def sent(generator: Child) -> int:
    match = generator.last(r"^(\d+) sent")
    return int(match[1]) if match else 0


def run(command: str, *arguments: str) -> str:
    return subprocess.run(
        [BIN / command, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def say(line: str) -> None:
    print(f"\n{line}", flush=True)


def show(*lines: str) -> None:
    for line in lines:
        print(f"   {line}", flush=True)


def free_port() -> int:
    """Return a free port; the next two are almost always free as well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return min(port, 65_000)


def main() -> None:
    # Without this, SIGTERM would leave the children behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        demo = Demo(Path(directory))
        demo.play()
        print(f"\nDone in {time.monotonic() - demo.started_s:.0f} s.")


if __name__ == "__main__":
    main()
