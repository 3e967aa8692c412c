"""Fault points of the crash matrix: files through which a drill stops or kills a process at a step.

The drill arms a step with an action. The first process that reaches the step takes the action, so
each armed step fires once. A process that holds says so, and waits until the drill releases it or
kills it. Every other process passes.
"""

from __future__ import annotations

import os
import signal
import time
from enum import StrEnum
from pathlib import Path

_POLL_S = 0.005


class Action(StrEnum):
    """KILL: the process kills itself with SIGKILL. HOLD: it waits for the drill. FAIL: it raises.
    RACE: it kills itself at a random time while the step runs."""

    KILL = "kill"
    HOLD = "hold"
    FAIL = "fail"
    RACE = "race"


class InjectedFault(Exception):
    """The failure of a step that is armed with FAIL."""


class Faults:
    """The fault points in a directory, which the drill and the processes under test share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    # The drill

    def arm(self, step: str, action: Action) -> None:
        for state in ("reached", "released"):
            self._file(step, state).unlink(missing_ok=True)
        self._write(step, "armed", action)

    def disarm(self, step: str) -> None:
        self._file(step, "armed").unlink(missing_ok=True)

    def reached_by(self, step: str) -> int | None:
        """Return the id of the process that took the action, or None."""
        try:
            return int(self._file(step, "reached").read_text())
        except FileNotFoundError:
            return None

    def release(self, step: str) -> None:
        self._write(step, "released", "")

    # The processes under test

    def reach(self, step: str) -> None:
        """Take the action of the step, if it is armed."""
        if (action := self.take(step)) is not None:
            self.perform(step, action)

    def take(self, step: str) -> Action | None:
        """Return the action of the step to one process; None to all others. A rename has only one
        winner."""
        taken = self._file(step, f"taken-{os.getpid()}")
        try:
            self._file(step, "armed").rename(taken)
        except FileNotFoundError:
            return None
        action = Action(taken.read_text())
        taken.unlink()
        self._write(step, "reached", str(os.getpid()))
        return action

    def perform(self, step: str, action: Action) -> None:
        if action is Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action is Action.FAIL:
            raise InjectedFault(f"the drill lets {step} fail")
        while not self._file(step, "released").exists():
            time.sleep(_POLL_S)

    def _file(self, step: str, state: str) -> Path:
        return self._directory / f"{step}.{state}"

    def _write(self, step: str, state: str, text: str) -> None:
        """Write a file that others see only whole."""
        partial = self._file(step, f"{state}-{os.getpid()}")
        partial.write_text(text)
        partial.rename(self._file(step, state))
