"""System calls about the page cache that Python's os does not have. Only Linux has them.

sync_file_range starts to write dirty pages. cachestat (since Linux 6.5) returns how many pages are
in memory, and never reads. A read with RWF_NOWAIT could find that out as well, but it makes the
kernel start to read ahead if a page is missing, and the caller waits while the disk's queue is
full.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

_SYNC_FILE_RANGE_WRITE = 2
# On every architecture.
_CACHESTAT = 451
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _CacheStatRange(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


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


def _system_call() -> Any:
    function = ctypes.CDLL(None).syscall
    function.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint,
    )
    function.restype = ctypes.c_long
    return function


_call = _system_call() if sys.platform == "linux" else None


def is_cached(descriptor: int, length: int, position: int) -> bool | None:
    """Return True if every page of a range is in memory or being read, None if the kernel does not
    tell."""
    pages, result = _CacheStatRange(position, length), _CacheStat()
    if (
        _call is None
        or _call(_CACHESTAT, descriptor, ctypes.byref(pages), ctypes.byref(result), 0) != 0
    ):
        return None
    return bool(result.cached > (position + length - 1) // _PAGE_BYTES - position // _PAGE_BYTES)
