"""sync_file_range, which Python's os does not have. Linux alone has it; elsewhere the kernel is left to do it when it will."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_SYNC_FILE_RANGE_WRITE = 2


@cache
def _sync_file_range() -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def begin_writing_out(descriptor: int, position: int, length: int) -> None:
    function = _sync_file_range()
    if function is not None and function(descriptor, position, length, _SYNC_FILE_RANGE_WRITE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
