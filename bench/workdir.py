"""A directory for a benchmark that is deleted when the benchmark ends, also if it is killed.

A child process waits until its standard input ends, which happens at any end of the benchmark. Then
it kills the processes whose working directory is in the directory, such as brokers, and deletes it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DELETE_TIMEOUT_S = 30.0
_RETRY_S = 0.1


@contextmanager
def working_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    command = [sys.executable, "-m", "bench.workdir", str(path)]
    # In a session of its own, so that a signal to the benchmark's process group does not end it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield path


def _main(path: Path) -> int:
    sys.stdin.buffer.read()
    deadline = time.monotonic() + _DELETE_TIMEOUT_S
    while path.exists() and time.monotonic() < deadline:
        _kill_processes(path)
        # Processes that end on their own may still write for a moment.
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            time.sleep(_RETRY_S)
    if path.exists():
        print(f"{path} could not be deleted: delete it by hand", file=sys.stderr)
        return 1
    return 0


def _kill_processes(path: Path) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended, or belongs to another user.
            directory = (process / "cwd").readlink()
            if directory == path or path in directory.parents:
                os.kill(int(process.name), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
