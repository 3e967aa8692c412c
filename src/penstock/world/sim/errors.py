"""What a simulated world raises that a real one does not."""

from __future__ import annotations


class NodeCrashed(BaseException):
    """Something of a crashed node was used. Not an OSError nor an Exception: no handler of ordinary
    errors may take it for one."""


class SimulationStuck(BaseException):
    """Nothing can happen any more, or too much happens: a deadlock or a livelock of the code under
    simulation."""


class SimulationFailed(Exception):
    """An exception that no task took care of. Its cause says what happened, its text under which
    seed."""
