"""A stream of the crash matrix: numbered input, the Spark driver that copies it, and the check.

Each batch has tasks with little output (partition 0), which travels in the commit message, and
tasks with much, which is written into prepared transactions.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.exactly_once_copy import QUICK
from tests.spark.crash_check import DEADLINE_S, CrashCheck, CrashMatrixError
from tests.spark.crash_faults import Action, Faults
from tests.spark.crash_job import Settings
from tests.spark.crash_processes import Driver

PARTITIONS = 3
# Rows of a partition in a batch, and in `produce`.
ROWS_IN_BATCH = 300
ROWS = 2 * ROWS_IN_BATCH
# A task of partition 0 stays below the bound of 256 KiB for output in the commit message.
SMALL_BYTES, LARGE_BYTES = 50, 2_000
_POLL_S = 0.01


class Stream:
    """`with Stream(...) as stream`: topics are created at the start, processes end with it."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        name: str,
        *,
        replicas: int = 3,
        delivery: str | None = None,
        stateful: bool = False,
        drain: bool = False,
        master: str = "local[2,4]",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name, self.directory, self.bootstrap = name, directory, bootstrap
        self.checkpoint = directory / "checkpoint"
        self.faults = Faults(directory / "faults")
        self.settings = Settings(
            servers=bootstrap,
            source=f"{name}-in",
            sink=f"{name}-out",
            checkpoint=str(self.checkpoint),
            faults=str(directory / "faults"),
            options={"sinkName": name} if delivery is None else {"delivery": delivery},
            rows_per_batch=PARTITIONS * ROWS_IN_BATCH,
            stateful=stateful,
            drain=drain,
            master=master,
            conf=dict(conf or {}),
        )
        self.check = CrashCheck(bootstrap, self.settings.sink)
        self.expected: Counter[int] = Counter()
        self.failures = 0
        self._replicas = replicas
        self._drivers: list[Driver] = []

    def __enter__(self) -> Stream:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        config = {"min.insync.replicas": str(min(2, self._replicas))}
        topics = [
            NewTopic(topic, PARTITIONS, self._replicas, config=config)
            for topic in (self.settings.source, self.settings.sink)
        ]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for driver in self._drivers:
            driver.kill(workers=True)
        self.check.close()

    # Input

    def produce(self, *, rows: int = ROWS, large_bytes: int = LARGE_BYTES) -> None:
        """Append new numbers to each partition. A stateful stream gets each of them twice.

        Running drivers are frozen meanwhile, so that a batch has rows of all partitions.
        """
        with ExitStack() as stack:
            for driver in self._drivers:
                if driver.exit_code is None:
                    stack.enter_context(driver.frozen())
            self._produce(rows, large_bytes)

    def _produce(self, rows: int, large_bytes: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **QUICK}
        )
        first = len(self.expected)
        rng = random.Random(first)
        for number in range(first, first + rows * PARTITIONS):
            partition = number % PARTITIONS
            size = rng.randrange(1, 2 * (SMALL_BYTES if partition == 0 else large_bytes))
            for _copy in range(2 if self.settings.stateful else 1):
                producer.produce(
                    self.settings.source,
                    value=rng.randbytes(size),
                    key=str(number),
                    partition=partition,
                )
            producer.poll(0)
            self.expected[number] = 1
        left = producer.flush(DEADLINE_S)
        if left:
            raise CrashMatrixError(f"{left} records of the input are unacknowledged")

    # Drivers

    @property
    def driver(self) -> Driver:
        return self._drivers[-1]

    def start(self, **changes: object) -> Driver:
        """Start another driver of this stream; the earlier ones keep running."""
        settings = dataclasses.replace(self.settings, **changes)  # type: ignore[arg-type]
        log = self.directory / f"driver-{len(self._drivers)}.log"
        self._drivers.append(Driver(settings, log))
        return self.driver

    def ensure_started(self) -> None:
        """Start a driver, if the last one failed or was killed."""
        if not self._drivers or self.driver.exit_code is not None:
            self.failures += bool(self._drivers) and self.driver.exit_code != -9
            self.start()

    def check_alive(self) -> None:
        if self.driver.exit_code is not None:
            raise CrashMatrixError(
                f"the driver ended with {self.driver.exit_code}:\n{self.driver.log()[-6000:]}"
            )

    def wait(
        self, condition: Callable[[], bool], what: str, alive: Callable[[], None] | None = None
    ) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            (alive or self.check_alive)()
            if time.monotonic() > deadline:
                raise CrashMatrixError(
                    f"{what} did not happen in {DEADLINE_S:g} s:\n{self.driver.log()[-6000:]}"
                )
            time.sleep(_POLL_S)

    def wait_failure(self, driver: Driver, text: str) -> None:
        """Wait until the driver ends with an error that contains the text."""
        self.wait(
            lambda: driver.exit_code is not None, "the failure of the driver", alive=lambda: None
        )
        if driver.exit_code == 0 or text not in driver.log():
            raise CrashMatrixError(
                f"the driver ended with {driver.exit_code}, and its log has no {text!r}:\n"
                f"{driver.log()[-6000:]}"
            )

    # Steps

    def hold(self, step: str) -> int:
        """Let a process of the driver hold at the step; return its id."""
        self.faults.arm(step, Action.HOLD)
        return self.wait_reached(step)

    def wait_reached(self, step: str) -> int:
        self.wait(lambda: self.faults.reached_by(step) is not None, f"the step {step}")
        process = self.faults.reached_by(step)
        assert process is not None
        return process

    def running(self) -> set[int]:
        """Return the batches in Spark's offset log that are not in its commit log. The commit log
        is read last, since a batch may end meanwhile."""
        offsets = self._batches("offsets")
        return offsets - self._batches("commits")

    def _batches(self, log: str) -> set[int]:
        directory = self.checkpoint / log
        names = [file.name for file in directory.iterdir()] if directory.exists() else []
        return {int(name) for name in names if name.isdecimal()}

    # Check

    def wait_settled(self, *, restart: bool = False) -> None:
        """Wait until all results are visible, each once, and no transaction is open. With
        `restart` a driver that fails is started again."""
        self.check.wait_for_results(
            self.expected, self.ensure_started if restart else self.check_alive
        )
        self.check.wait_until_ended()
        self.check.check(self.expected)

    def summary(self, rounds: int) -> str:
        return (
            f"{rounds} rounds, {len(self.expected)} results exactly as often as expected, no "
            f"transaction open, {len(self._drivers)} drivers, {self.failures} of them failed"
        )
