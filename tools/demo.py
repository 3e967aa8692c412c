"""make demo: run three brokers, a payments generator and a Spark pipeline, and kill a leader.

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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PAYMENTS = 100_000
RATE = 2_500
TOPIC = "payments"
OUTPUT_TOPICS = ("payments-totals", "payments-alerts", "payments-dead-letters")
QUERIES = 4
# The end of the last window of the generator's scenario.
LAST_WINDOW_END = "2026-03-02T00:30"
DOWNTIME_S = 5.0
BIN = Path(sys.executable).parent
PIPELINE = Path("pipelines/payments/pipeline.py")


class Child:
    """A child process whose output lines are collected while it runs."""

    def __init__(self, *command: str | Path) -> None:
        self.lines: list[str] = []
        self.command = list(map(str, command))
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def last(self, pattern: str) -> re.Match[str] | None:
        """Return the match in the last line that matches the pattern."""
        return next(
            (match for line in reversed(self.lines) if (match := re.search(pattern, line))), None
        )

    def check(self) -> None:
        """Exit with the last lines of its output if the process failed."""
        if self.process.poll():
            self._reading.join()
            raise SystemExit("\n".join(["", *self.lines[-20:], f"{' '.join(self.command)} failed"]))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())


class Demo:
    def __init__(self, directory: Path) -> None:
        self.data, self.truth = directory / "data", directory / "truth.json"
        self.checkpoint, self.tables = directory / "checkpoint", directory / "tables"
        self.started_s = time.monotonic()

    def play(self) -> None:
        say("1. Start three brokers (penstock up --brokers 3)")
        with running(
            Child(
                BIN / "penstock",
                "up",
                "--brokers",
                "3",
                "--port",
                str(free_port()),
                "--dir",
                self.data,
            )
        ) as cluster:
            self.wait(lambda: bool(cluster.lines), cluster)
            show(cluster.lines[0])
            self.bootstrap = ["--bootstrap-server", cluster.lines[0].partition("=")[2]]

            say("2. Create topics with replication factor 3 (kafka-topics.sh --create)")
            for topic in (TOPIC, *OUTPUT_TOPICS):
                options = [
                    "--topic",
                    topic,
                    "--partitions",
                    "3",
                    "--replication-factor",
                    "3",
                    "--config",
                    "min.insync.replicas=2",
                ]
                show(run("kafka-topics.sh", "--create", *self.bootstrap, *options))

            say(
                f"3. Produce {RATE:,} payments per second, process them on Spark (penstock "
                "pipeline run), kill the leader of a partition"
            )
            with running(self.pipeline()) as pipeline:
                self.wait(
                    lambda: len(list(self.checkpoint.glob("*/metadata"))) == QUERIES, pipeline
                )
                with running(self.generator()) as generator:
                    self.produce_and_kill(generator, pipeline)
                say("4. Wait until Spark's watermark has passed the last window")
                self.wait(lambda: drained(pipeline, generator), pipeline)
                pipeline.process.send_signal(signal.SIGINT)
                self.wait(lambda: not pipeline.running, pipeline)

            say("5. Compare output with input (python -m pipelines.payments.audit)")
            self.audit()

    def pipeline(self) -> Child:
        settings = ["--checkpoint", str(self.checkpoint), "-c", f"tables={self.tables}"]
        return Child(BIN / "penstock", "pipeline", "run", PIPELINE, *self.bootstrap, *settings)

    def generator(self) -> Child:
        scenario = ["--payments", str(PAYMENTS), "--rate", str(RATE), "--customers", "2500"]
        return Child(
            sys.executable,
            "-m",
            "pipelines.payments.generate",
            *self.bootstrap,
            *scenario,
            "--truth",
            self.truth,
        )

    def produce_and_kill(self, generator: Child, pipeline: Child) -> None:
        """Kill the leader when half of the payments are sent and Spark has read some, or at
        80 percent."""

        def half_sent() -> bool:
            return sent(generator) > PAYMENTS * 0.8 or (
                sent(generator) > PAYMENTS // 2 and bool(rows_read(pipeline))
            )

        self.wait(half_sent, generator, pipeline)
        leader = re.search(
            r"Partition: 0\s+Leader: (\d+)",
            run("kafka-topics.sh", "--describe", *self.bootstrap, "--topic", TOPIC),
        )
        assert leader is not None
        run("penstock", "nodes", "kill", leader[1], "--dir", str(self.data))
        show(f"killed broker {leader[1]}, the leader of {TOPIC}-0 (kill -9)")
        restart_at = time.monotonic() + DOWNTIME_S
        self.wait(lambda: time.monotonic() > restart_at, generator, pipeline)
        with running(
            Child(BIN / "penstock", "nodes", "restart", leader[1], "--dir", self.data)
        ) as restart:
            self.wait(lambda: not restart.running, generator, pipeline, restart)
        show(f"restarted broker {leader[1]}")
        self.wait(lambda: not generator.running, generator, pipeline)

    def audit(self) -> None:
        with running(
            Child(
                sys.executable,
                "-m",
                "pipelines.payments.audit",
                *self.bootstrap,
                "--truth",
                self.truth,
                "--tables",
                self.tables,
            )
        ) as audit:
            self.wait(lambda: not audit.running)
            audit.stop()
            lines = [line for line in audit.lines if line.startswith(("ok ", "BAD"))]
            show(*(lines or audit.lines[-20:]))
            if audit.process.returncode:
                raise SystemExit("\nThe audit failed: output and input differ.")

    def wait(self, until: Callable[[], bool], *children: Child) -> None:
        """Wait for a condition, and show the children's progress every three seconds."""
        shown_s = time.monotonic()
        while not until():
            for child in children:
                child.check()
            if time.monotonic() > shown_s + 3:
                shown_s = time.monotonic()
                progress = [text for child in children if (text := progress_of(child))]
                show(f"{shown_s - self.started_s:4.0f} s  {'   '.join(progress) or '…'}")
            time.sleep(0.1)
        for child in children:
            child.check()


def progress_of(child: Child) -> str:
    """Summarise the progress of a generator or a pipeline."""
    if match := child.last(r"^(\d+) sent, (\d+) acknowledged"):
        return f"{int(match[1]):,} sent, {int(match[2]):,} acknowledged;"
    if "pipeline" in child.command:
        return "read by Spark: " + (
            ", ".join(f"{name} {count:,}" for name, count in rows_read(child).items())
            or "(starting)"
        )
    return ""


def sent(generator: Child) -> int:
    match = generator.last(r"^(\d+) sent")
    return int(match[1]) if match else 0


def rows_read(pipeline: Child) -> dict[str, int]:
    """Return the rows read by each query, from the output of `pipeline run`."""
    pattern = r"(\S+): batch \d+, rows ([\d,]*\d)"
    matches = (re.match(pattern, line) for line in list(pipeline.lines))
    counts = {match[1]: int(match[2].replace(",", "")) for match in matches if match}
    return {name: count for name, count in counts.items() if count}


def drained(pipeline: Child, generator: Child) -> bool:
    """Return True if everything is read, and the watermark of each windowed query has passed the
    last window."""
    watermarks = [pipeline.last(rf"^{name}: .* watermark (\S+Z)") for name in ("totals", "table")]
    rows = rows_read(pipeline)
    return (
        len(rows) == QUERIES
        and set(rows.values()) == {sent(generator)}
        and all(watermark and watermark[1] > LAST_WINDOW_END for watermark in watermarks)
    )


@contextlib.contextmanager
def running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.stop()


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
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        demo = Demo(Path(directory))
        demo.play()
        print(f"\nDone in {time.monotonic() - demo.started_s:.0f} s.")


if __name__ == "__main__":
    main()
