"""The child process of a node: reads pickled calls from standard input and writes pickled outcomes
to standard output.

A message is its length in 8 bytes and a pickle. The child is started as a plain program and not by
`multiprocessing`, which would run the main module of an application that embeds Penstock again.

The child must never outlive its node: a compaction that continues beside a restarted broker would
write to the same files. Therefore a thread reads the input all the time, also while a call runs,
and the end of the input ends the process immediately.
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
# The first message is the parent's import path, so that the child finds the same modules.
BOOTSTRAP = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from "
    "penstock.world.real.child import serve; serve()"
)


def pack(message: object) -> bytes:
    """Encode a message. Raise PicklingError, AttributeError or TypeError, as pickle does, if it
    cannot be pickled."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) > MAX_CHILD_MESSAGE_BYTES:
        raise ValueError(
            f"message of {len(data)} bytes exceeds the child process's limit of "
            f"{MAX_CHILD_MESSAGE_BYTES}: pass file names and positions, not data"
        )
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def serve() -> None:
    """Run calls one after the other until the parent ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a call prints goes to standard error, not among the messages
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
    """Run a call and encode (True, result) or (False, exception)."""
    try:
        call: Callable[..., object]
        call, args, kwargs = pickle.loads(request)
        return pack((True, call(RealDisk(), *args, **kwargs)))
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        error.add_note("in the child process:\n" + "".join(traceback.format_exception(error)))
        return _packed_error(error)


def _packed_error(error: Exception) -> bytes:
    """Encode an exception. If it cannot be pickled and unpickled, send its text as a
    RuntimeError."""
    try:
        packed = pack((False, error))
        pickle.loads(packed[LENGTH_BYTES:])
    except Exception:  # noqa: BLE001 - any failure of a foreign __reduce__ or __init__
        return pack((False, RuntimeError("".join(traceback.format_exception(error)))))
    return packed
