"""The child process of a node: takes pickled calls on its standard input and gives pickled outcomes
on its standard output.

Owns the child's side and the form of its messages (a length in 8 bytes, then a pickle). It is
started as a plain program, not by `multiprocessing`, because that would run the main module of
whoever embeds Penstock once more.

The child must never outlive its node: a compaction that goes on beside a restarted broker would
write to the same files. So a thread reads the input all the time, also while a call runs, and the
end of the input ends the process at once.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO

from penstock.limits import MAX_CHILD_MESSAGE_BYTES
from penstock.world.real.disk import RealDisk

LENGTH_BYTES = 8
# The parent's import path comes first, so that the child finds the same modules.
BOOTSTRAP = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from "
    "penstock.world.real.child import serve; serve()"
)


def pack(message: object) -> bytes:
    """Raises what pickle raises (PicklingError, AttributeError, TypeError) where the message is no
    plain value."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) > MAX_CHILD_MESSAGE_BYTES:
        raise ValueError(
            f"a message of {len(data)} bytes is too large for the child process: pass names and "
            "positions, not data"
        )
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def serve() -> None:
    """Runs calls one after the other until the parent goes away."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a call prints must not end up among the messages
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        output.write(_outcome(requests.get()))
        output.flush()


def _read_requests(source: BinaryIO, requests: SimpleQueue[bytes]) -> None:
    while len(header := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        requests.put(source.read(int.from_bytes(header, "big")))
    os._exit(0)


def _outcome(request: bytes) -> bytes:
    """(True, result) or (False, exception)."""
    try:
        call: Callable[..., object]
        call, args, kwargs = pickle.loads(request)
        return pack((True, call(RealDisk(), *args, **kwargs)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised again in the parent
        error.add_note("in the child process:\n" + "".join(traceback.format_exception(error)))
        return _packed_error(error)


def _packed_error(error: Exception) -> bytes:
    """Some exceptions cannot be pickled, or not be built again from their pickle: those pass as
    their text."""
    try:
        packed = pack((False, error))
        pickle.loads(packed[LENGTH_BYTES:])
    except Exception:  # noqa: BLE001 - any failure of a foreign __reduce__ or __init__
        return pack((False, RuntimeError("".join(traceback.format_exception(error)))))
    return packed
