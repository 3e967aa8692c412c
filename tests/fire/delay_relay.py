"""Delays the packets that leave a host: a TUN device in its namespace, and one at the bridge.

    python -m tests.fire.delay_relay NAMESPACE DELAY_MS

Packets that the host routes to `slow-in` come out of `slow-out` after the delay, in order. Packets
to the host are not delayed, so the round trip grows by the delay once. The devices exist as long as
this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_LARGEST_PACKET = 65_536
# Packets beyond this are lost, as in a router's queue.
_QUEUE_PACKETS = 20_000


def main(namespace: str, delay_s: float) -> None:
    target = _open_tun("slow-out")
    with open(namespace) as file:
        if ctypes.CDLL(None).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise SystemExit(f"cannot enter {namespace}")
    source = _open_tun("slow-in")
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([source], [], [], timeout)[0]:
            packet = os.read(source, _LARGEST_PACKET)
            if len(waiting) < _QUEUE_PACKETS:
                waiting.append((time.monotonic() + delay_s, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _send(target, waiting.popleft()[1])


def _send(target: int, packet: bytes) -> None:
    try:
        os.write(target, packet)
    except OSError:
        # The device is not up yet, or refuses the packet (IPv6): it is lost, as on any network.
        return


def _open_tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return fd


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) / 1000)
