"""The rows of the crash matrix, each with real Spark drivers and three brokers.

In each round a process holds at a step, the drill looks at the cluster, and kills something. Then
each result must be visible once, and no transaction open.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.spark.crash_check import CrashMatrixError
from tests.spark.crash_cluster import (
    EXECUTOR_CONF,
    Brokers,
    TwoHosts,
    executors,
    kill_executor,
    ongoing,
)
from tests.spark.crash_faults import Action
from tests.spark.crash_processes import kill, python_workers
from tests.spark.crash_stream import PARTITIONS, ROWS_IN_BATCH, Stream
from tests.spark.standalone import SparkStandalone

# Brokers, a directory and the number of rounds; returns a summary.
Row = Callable[[Brokers, Path, int], str]
# A task sends what it has gathered when it is more than this.
_MORE_THAN_GATHERED = 5 * 1024 * 1024 // ROWS_IN_BATCH
# Long enough for a request to reach a frozen broker's socket.
_ON_ITS_WAY_S = 1.0
# Without two-phase commit, a transaction must have a minute left when it is decided.
TIMEOUT_S = 75
NO_TWO_PHASE = (
    "transaction.two.phase.commit.enable=false",
    f"transaction.max.timeout.ms={1000 * TIMEOUT_S}",
)


def _check_open(stream: Stream) -> None:
    """The fault happens where it should: with prepared transactions open."""
    stream.wait(lambda: bool(ongoing(stream.bootstrap, stream.name)), "an open transaction")


def task_in_mid_write(brokers: Brokers, directory: Path, rounds: int) -> str:
    """A Python worker dies between two batches of records. Spark runs the task again."""
    with Stream(brokers.bootstrap, directory, "mid-write") as stream:
        for _round in range(rounds):
            stream.faults.arm("mid-write", Action.HOLD)
            stream.produce(rows=ROWS_IN_BATCH, large_bytes=_MORE_THAN_GATHERED)
            stream.ensure_started()
            worker = stream.wait_reached("mid-write")
            _check_open(stream)
            kill(worker)
            stream.wait_settled()
        return stream.summary(rounds)


def executor_lost(brokers: Brokers, directory: Path, rounds: int) -> str:
    """An executor dies in mid-write, and its task runs again on another."""
    with (
        TwoHosts(directory / "spark") as spark,
        Stream(
            brokers.bootstrap, directory, "executor", master=spark.master, conf=EXECUTOR_CONF
        ) as stream,
    ):
        for number in range(rounds):
            # A task that has written everything holds more than one in mid-write.
            step = ("mid-write", "prepared")[number % 2]
            stream.faults.arm(step, Action.HOLD)
            stream.produce(rows=ROWS_IN_BATCH, large_bytes=_MORE_THAN_GATHERED)
            stream.ensure_started()
            worker = stream.wait_reached(step)
            _check_open(stream)
            kill_executor(worker)
            stream.wait_settled()
        return stream.summary(rounds)


def speculative_twin(brokers: Brokers, directory: Path, rounds: int) -> str:
    """Two attempts write the same rows. The commit lists one, and aborts the other at once."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.efficiency.enabled": "false",
    }
    with (
        TwoHosts(directory / "spark") as spark,
        Stream(
            brokers.bootstrap,
            directory,
            "twin",
            master=spark.master,
            conf={**EXECUTOR_CONF, **speculation},
        ) as stream,
    ):
        for _round in range(rounds):
            stream.faults.arm("prepared", Action.HOLD)
            stream.produce(rows=ROWS_IN_BATCH)
            stream.ensure_started()
            stream.wait_reached("prepared")
            _check_open(stream)
            stream.wait_settled()
        return stream.summary(rounds)


def driver_killed_at(
    *steps: str, stateful: bool = False, is_open: bool = True, delivery: str | None = None
) -> Row:
    """The driver dies at a step, in every other round with all its Python workers at once."""

    def row(brokers: Brokers, directory: Path, rounds: int) -> str:
        name = f"driver-{steps[0]}"
        with Stream(
            brokers.bootstrap, directory, name, stateful=stateful, delivery=delivery
        ) as stream:
            for number in range(rounds):
                step = steps[number % len(steps)]
                stream.faults.arm(step, Action.HOLD)
                stream.produce()
                stream.ensure_started()
                stream.wait_reached(step)
                if is_open:
                    _check_open(stream)
                stream.driver.kill(workers=number % 2 == 0)
                stream.start()
                stream.wait_settled()
            return stream.summary(rounds)

    return row


def decision_in_doubt(brokers: Brokers, directory: Path, rounds: int) -> str:
    """EndTxn of the driver's transaction is sent, and its answer lost: the committing process dies
    meanwhile, or the coordinator is frozen and the driver dies."""
    with Stream(brokers.bootstrap, directory, "doubt") as stream:
        for number in range(rounds):
            frozen = number % 3 != 0
            stream.faults.arm("decision", Action.HOLD if frozen else Action.RACE)
            stream.produce()
            stream.ensure_started()
            stream.wait_reached("decision")
            if frozen:
                coordinator = brokers.coordinator(f"{stream.name}/driver")
                brokers.pause(coordinator)
                stream.faults.release("decision")
                time.sleep(_ON_ITS_WAY_S)
                stream.driver.kill(workers=True)
                if number % 3 == 1:
                    brokers.resume(coordinator)
                else:
                    brokers.kill(coordinator)
                    brokers.restart(coordinator)
                stream.start()
            stream.wait_settled(restart=True)
        return stream.summary(rounds)


def zombie_driver(brokers: Brokers, directory: Path, rounds: int) -> str:
    """A driver that was replaced goes on: before its successor's decision, after it, and with a
    task that still writes."""
    with Stream(brokers.bootstrap, directory, "zombie") as stream:
        for number in range(rounds):
            step = ("decision", "decision", "mid-write")[number % 3]
            stream.faults.arm(step, Action.HOLD)
            stream.produce(large_bytes=_MORE_THAN_GATHERED)
            stream.ensure_started()
            stream.wait_reached(step)
            zombie = stream.driver
            if number % 3 == 0:
                stream.faults.arm("commit", Action.HOLD)
                stream.start()
                stream.wait_reached("commit")
                stream.faults.release(step)
                stream.wait_failure(zombie, "")
                stream.faults.release("commit")
            else:
                stream.start()
                stream.check.wait_for_results(stream.expected, stream.check_alive)
                stream.faults.release(step)
                stream.wait_failure(zombie, "")
                # What a zombie's task leaves open, the next lease aborts.
                stream.produce(rows=ROWS_IN_BATCH)
            stream.wait_settled()
        return stream.summary(rounds)


def coordinator_down(brokers: Brokers, directory: Path, rounds: int) -> str:
    """The coordinator of a listed transaction dies before its end, or all brokers do."""
    with Stream(brokers.bootstrap, directory, "coordinator") as stream:
        for number in range(rounds):
            stream.faults.arm("decided", Action.HOLD)
            stream.produce()
            stream.ensure_started()
            stream.wait_reached("decided")
            listed = ongoing(stream.bootstrap, stream.name)
            _check_open(stream)
            down = brokers.ids if number % 3 == 2 else [brokers.coordinator(listed[0])]
            brokers.kill(*down)
            stream.faults.release("decided")
            time.sleep(_ON_ITS_WAY_S)
            brokers.restart(*down)
            stream.wait_settled()
        return stream.summary(rounds)


def checkpoint_deleted(brokers: Brokers, directory: Path, rounds: int) -> str:
    """A new query under the sink's name writes again, and ends what the old one left: what was
    decided is visible, what was not is gone."""
    with Stream(brokers.bootstrap, directory, "deleted") as stream:
        for number in range(rounds):
            step = ("committed", "decided", "commit")[number % 3]
            before = Counter(stream.expected)
            # One batch: the driver does not run meanwhile.
            stream.produce(rows=ROWS_IN_BATCH)
            stream.faults.arm(step, Action.HOLD)
            stream.start()
            stream.wait_reached(step)
            stream.driver.kill(workers=True)
            shutil.rmtree(stream.checkpoint)
            again = before if step == "commit" else stream.expected
            stream.expected.update(again.keys())
            stream.start()
            stream.wait_settled()
            stream.driver.kill(workers=True)
        return stream.summary(rounds)


def older_checkpoint(brokers: Brokers, directory: Path, rounds: int) -> str:
    """A checkpoint behind the sink is refused, and writes nothing. A batch whose offsets differ
    from those of the decided one is refused too."""
    with Stream(brokers.bootstrap, directory, "older") as stream:
        stream.produce()
        stream.start()
        stream.wait_settled()
        for number in range(rounds):
            newer = directory / f"newer-{number}"
            older = directory / f"older-{number}"
            stream.driver.kill(workers=True)
            shutil.copytree(stream.checkpoint, older)
            stream.produce(rows=(2 if number % 2 == 0 else 1) * ROWS_IN_BATCH)
            stream.start()
            stream.wait_settled()
            stream.driver.kill(workers=True)
            stream.checkpoint.rename(newer)
            older.rename(stream.checkpoint)
            # The batch after the older checkpoint's last one, with other offsets.
            small = {"rows_per_batch": PARTITIONS * ROWS_IN_BATCH // 2}
            driver = stream.start(**(small if number % 2 else {}))
            stream.wait_failure(driver, "older checkpoint")
            stream.check.wait_until_ended()
            stream.check.check(stream.expected)
            shutil.rmtree(stream.checkpoint)
            newer.rename(stream.checkpoint)
            stream.produce(rows=ROWS_IN_BATCH)
            stream.start()
            stream.wait_settled()
        return stream.summary(rounds)


def past_the_timeout(bootstrap: str, directory: Path, rounds: int, *, replicas: int = 3) -> str:
    """Without two-phase commit: an undecided batch is refused when too little time is left, and
    written again. A decided one whose transactions timed out fails each start."""
    for number in range(rounds):
        name = f"timeout-{number}"
        with Stream(bootstrap, directory / name, name, replicas=replicas) as stream:
            step = ("commit", "decided")[number % 2]
            stream.faults.arm(step, Action.HOLD)
            stream.produce(rows=ROWS_IN_BATCH)
            stream.start()
            stream.wait_reached(step)
            _check_open(stream)
            if step == "commit":
                time.sleep(TIMEOUT_S - 60 + 1)
                stream.faults.release(step)
                stream.wait_failure(stream.driver, "nothing of the batch is written")
                stream.start()
                stream.wait_settled()
                continue
            stream.driver.kill(workers=True)
            stream.check.wait_until_ended(patience_s=2 * TIMEOUT_S)
            for _start in range(2):
                stream.wait_failure(stream.start(), "are lost")
            results = stream.check.results(stream.expected)
            if results.duplicates or not results.lost:
                raise CrashMatrixError(
                    f"{len(results.lost)} results are lost, {len(results.duplicates)} duplicated"
                )
    return f"{rounds} rounds, each ended with an error"


def random_kills(
    brokers: Brokers, directory: Path, rounds: int, spark: SparkStandalone | None = None
) -> str:
    """Drivers, workers and brokers die at random times of a batch."""
    rng = random.Random(rounds)
    kills: Counter[str] = Counter()
    worker = "Python worker" if spark is None else "executor"
    victims = ("driver", "driver and its workers", worker, "broker", "all brokers")
    name = "random" if spark is None else "random-executors"
    with Stream(
        brokers.bootstrap,
        directory,
        name,
        stateful=True,
        master="local[2,4]" if spark is None else spark.master,
        conf=None if spark is None else EXECUTOR_CONF,
    ) as stream:
        workers: list[int] = []

        def has_workers() -> bool:
            workers[:] = python_workers(stream.driver.id) if spark is None else executors(spark)
            return bool(workers)

        for number in range(rounds):
            victim = victims[number % len(victims)]
            stream.produce()
            stream.ensure_started()
            stream.wait(lambda: bool(stream.running()), "a batch", stream.ensure_started)
            time.sleep(rng.uniform(0, 1.5))
            if victim == "all brokers":
                brokers.kill(*brokers.ids)
                brokers.restart(*brokers.ids)
            elif victim == "broker":
                broker = rng.choice(brokers.ids)
                brokers.kill(broker)
                time.sleep(rng.uniform(0, 3))
                brokers.restart(broker)
            elif victim == worker:
                stream.wait(has_workers, worker, stream.ensure_started)
                kill(rng.choice(workers))
            else:
                stream.driver.kill(workers=victim != "driver")
            kills[victim] += 1
            stream.wait_settled(restart=True)
        killed = ", ".join(f"{victim} {times}" for victim, times in kills.items())
        return f"{stream.summary(rounds)}; killed: {killed}"


ROWS: dict[str, Row] = {
    "task in mid-write": task_in_mid_write,
    "executor lost": executor_lost,
    "speculative twin": speculative_twin,
    "all written but undecided": driver_killed_at("commit", "checked", "written"),
    "decision in doubt": decision_in_doubt,
    "decided with ends incomplete": driver_killed_at("decided", "ended-one"),
    "ended before Spark's commit log": driver_killed_at(
        "committed", "ended", stateful=True, is_open=False
    ),
    "zombie driver": zombie_driver,
    "coordinator down while ending": coordinator_down,
    "checkpoint deleted": checkpoint_deleted,
    "older checkpoint restored": older_checkpoint,
}
