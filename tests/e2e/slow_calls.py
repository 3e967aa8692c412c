"""Delays system calls of a process with strace, as a disk does that is worn out or hangs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_PATIENCE_S = 30.0

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None,
    reason="strace is not installed (Debian's package strace; see tools/packages)",
)
# What syncs a file.
SYNCS = ("fdatasync", "fsync")
# What tells the size of a volume: a scrape asks for it.
VOLUMES = ("statfs",)


@contextmanager
def slow_calls(pid: int, delay_s: float, *calls: str) -> Iterator[None]:
    """Let every one of these calls of a process take longer."""
    names = ",".join(calls)
    delay = f"inject={names}:delay_enter={round(delay_s * 1_000_000)}"
    words = ["strace", "-f", "-q", "-o", "/dev/null", "-e", f"trace={names}", "-e", delay]
    tracer = subprocess.Popen([*words, "-p", str(pid)], stderr=subprocess.PIPE)
    try:
        yield
    finally:
        still_traces = tracer.poll() is None
        tracer.terminate()
        _out, errors = tracer.communicate(timeout=_PATIENCE_S)
        assert still_traces, errors.decode()
