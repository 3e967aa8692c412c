"""Keys that are pressed on a terminal, without waiting for a line end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

# What terminals send for keys that are no characters.
_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\t": "tab",
    b"\x1b[Z": "back tab",
}
_READ_BYTES = 64


@contextlib.contextmanager
def pressed(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call `on_key` in the running event loop for each key. Without a terminal, for none."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            # The terminal is gone; the descriptor would stay readable.
            loop.remove_reader(descriptor)
        for key in split_keys(data):
            on_key(key)

    # Ctrl-C still sends SIGINT.
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def split_keys(data: bytes) -> list[str]:
    """Return the keys in the bytes that a terminal sent; unknown sequences are left out."""
    keys = []
    while data:
        sequence = next((each for each in _SEQUENCES if data.startswith(each)), None)
        if sequence is not None:
            keys.append(_SEQUENCES[sequence])
            data = data[len(sequence) :]
        elif data.startswith(b"\x1b"):
            break
        else:
            keys.append(chr(data[0]))
            data = data[1:]
    return keys
