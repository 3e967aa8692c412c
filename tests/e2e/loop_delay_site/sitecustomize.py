"""Python imports this at the start of every process of a `MeasuredCluster`. A node then measures
its loop delay by the loop's own time. On SIGUSR1 it writes the delays since the signal before into
$PENSTOCK_LOOP_DELAYS/PID, and begins again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from penstock.server.loop_delay import LoopDelay
from penstock.world import Clock
from tests.e2e.loop_delay_node import ThreadClock

REPORTS = Path(os.environ["PENSTOCK_LOOP_DELAYS"])
measure, begin = LoopDelay.__init__, LoopDelay.start


def measure_own_time(delay: LoopDelay, _clock: Clock) -> None:
    measure(delay, ThreadClock())


def begin_and_report(delay: LoopDelay) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report, delay)
    setattr(LoopDelay, "start", begin)  # noqa: B010 - mypy refuses the assignment
    begin(delay)


def report(delay: LoopDelay) -> None:
    text = str(delay)
    delay.stop()
    measure(delay, ThreadClock())
    begin(delay)
    unfinished = REPORTS / f"{os.getpid()}.unfinished"
    unfinished.write_text(text)
    unfinished.rename(REPORTS / str(os.getpid()))


setattr(LoopDelay, "__init__", measure_own_time)  # noqa: B010
setattr(LoopDelay, "start", begin_and_report)  # noqa: B010
