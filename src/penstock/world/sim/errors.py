"""Exceptions that only the simulated world raises."""

from __future__ import annotations


class NodeCrashed(BaseException):
    """A crashed node used its disk or network. It is no Exception, so that no handler of ordinary
    errors catches it."""


class SimulationStuck(BaseException):
    """The simulated code is in a deadlock or a livelock."""


class SimulationFailed(Exception):
    """No code handled an exception. Its text names the seed and the node; its cause is the
    exception."""
