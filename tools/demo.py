"""make demo: three brokers, thousands of payments a second, a pipeline on Spark; a leader is
killed, and the books balance to the cent.

Uses the commands that everybody has. Exits with 1 where anything is lost, counted twice, or a cent
off.
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
WRITTEN = ("payments-totals", "payments-alerts", "payments-dead-letters")
QUERIES = 4
# When the last window of the generator's scenario is over.
LAST_WINDOW = "2026-03-02T00:30"
DEAD_FOR_S = 5.0
BIN = Path(sys.executable).parent
PIPELINE = Path("pipelines/payments/pipeline.py")


class Child:
    """A process whose lines are taken in while it runs. It ends with this one."""

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
        """The last line that has it."""
        return next(
            (found for line in reversed(self.lines) if (found := re.search(pattern, line))), None
        )

    def check(self) -> None:
        """It must not have failed."""
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
        say("1. Three brokers (penstock up --brokers 3)")
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
            self.where = ["--bootstrap-server", cluster.lines[0].partition("=")[2]]

            say("2. Topics with three copies of each partition (kafka-topics.sh --create)")
            for topic in (TOPIC, *WRITTEN):
                made = [
                    "--topic",
                    topic,
                    "--partitions",
                    "3",
                    "--replication-factor",
                    "3",
                    "--config",
                    "min.insync.replicas=2",
                ]
                show(run("kafka-topics.sh", "--create", *self.where, *made))

            say(
                f"3. Payments, {RATE:,} events a second; a pipeline on Spark (penstock pipeline "
                "run); the leader of a partition is killed"
            )
            with running(self.pipeline()) as pipeline:
                self.wait(
                    lambda: len(list(self.checkpoint.glob("*/metadata"))) == QUERIES, pipeline
                )
                with running(self.generator()) as generator:
                    self.produce_and_kill(generator, pipeline)
                say("4. Spark reads on, until its watermark has passed the last window")
                self.wait(lambda: drained(pipeline, generator), pipeline)
                pipeline.process.send_signal(signal.SIGINT)
                self.wait(lambda: not pipeline.running, pipeline)

            say("5. What was written, against what was sent (python -m pipelines.payments.audit)")
            self.audit()

    def pipeline(self) -> Child:
        settings = ["--checkpoint", str(self.checkpoint), "-c", f"tables={self.tables}"]
        return Child(BIN / "penstock", "pipeline", "run", PIPELINE, *self.where, *settings)

    def generator(self) -> Child:
        scenario = ["--payments", str(PAYMENTS), "--rate", str(RATE), "--customers", "2500"]
        return Child(
            sys.executable,
            "-m",
            "pipelines.payments.generate",
            *self.where,
            *scenario,
            "--truth",
            self.truth,
        )

    def produce_and_kill(self, generator: Child, pipeline: Child) -> None:
        """Kills when half is sent and Spark is at work, or when it is high time."""

        def half_way() -> bool:
            return sent(generator) > PAYMENTS * 0.8 or (
                sent(generator) > PAYMENTS // 2 and bool(rows_read(pipeline))
            )

        self.wait(half_way, generator, pipeline)
        leader = re.search(
            r"Partition: 0\s+Leader: (\d+)",
            run("kafka-topics.sh", "--describe", *self.where, "--topic", TOPIC),
        )
        assert leader is not None
        run("penstock", "nodes", "kill", leader[1], "--dir", str(self.data))
        show(f"broker {leader[1]}, which leads {TOPIC}-0, is killed (kill -9)")
        again_s = time.monotonic() + DEAD_FOR_S
        self.wait(lambda: time.monotonic() > again_s, generator, pipeline)
        with running(
            Child(BIN / "penstock", "nodes", "restart", leader[1], "--dir", self.data)
        ) as restart:
            self.wait(lambda: not restart.running, generator, pipeline, restart)
        show(f"broker {leader[1]} is back")
        self.wait(lambda: not generator.running, generator, pipeline)

    def audit(self) -> None:
        with running(
            Child(
                sys.executable,
                "-m",
                "pipelines.payments.audit",
                *self.where,
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
                raise SystemExit("\nThe books do not balance.")

    def wait(self, until: Callable[[], bool], *children: Child) -> None:
        """Shows how far the children are."""
        shown_s = time.monotonic()
        while not until():
            for child in children:
                child.check()
            if time.monotonic() > shown_s + 3:
                shown_s = time.monotonic()
                told = [words for child in children if (words := state_of(child))]
                show(f"{shown_s - self.started_s:4.0f} s  {'   '.join(told) or '…'}")
            time.sleep(0.1)
        for child in children:
            child.check()


def state_of(child: Child) -> str:
    """Of a generator or a pipeline, in few words."""
    if told := child.last(r"^(\d+) sent, (\d+) acknowledged"):
        return f"{int(told[1]):,} sent, {int(told[2]):,} acknowledged;"
    if "pipeline" in child.command:
        return "read by Spark: " + (
            ", ".join(f"{name} {count:,}" for name, count in rows_read(child).items())
            or "(starting)"
        )
    return ""


def sent(generator: Child) -> int:
    told = generator.last(r"^(\d+) sent")
    return int(told[1]) if told else 0


def rows_read(pipeline: Child) -> dict[str, int]:
    """Of each query that has read any, from what `pipeline run` tells of each batch."""
    found = (re.match(r"(\S+): batch \d+, rows ([\d,]*\d)", line) for line in list(pipeline.lines))
    counts = {one[1]: int(one[2].replace(",", "")) for one in found if one}
    return {name: count for name, count in counts.items() if count}


def drained(pipeline: Child, generator: Child) -> bool:
    """Everything is read, and each query with windows has had a batch after the last of them was
    over."""
    watermarks = [pipeline.last(rf"^{name}: .* watermark (\S+Z)") for name in ("totals", "table")]
    rows = rows_read(pipeline)
    return (
        len(rows) == QUERIES
        and set(rows.values()) == {sent(generator)}
        and all(one and one[1] > LAST_WINDOW for one in watermarks)
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
    """The first of three, of which the next two are free as well, as nearly all are."""
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
