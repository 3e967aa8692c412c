"""A network of namespaces on one bridge, whose links can be cut, lose, slow down and delay packets.

The caller runs in a user, network and mount namespace of its own (`tests.fire.lab`). Its network
namespace has the bridge; every host is one more namespace with a veth pair to it. A namespace is
entered by threads: what a thread opens or starts after `enter` is in that host's network.

Cuts and loss are nftables rules of the bridge, bandwidth is `tc tbf` at a host's port. Delay is a
relay process (`tests.fire.delay_relay`), because the kernels of small machines have no netem.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
_NETWORK = "10.77.0"
_LIBC = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """A command of the network failed; the text has its output."""


class Host:
    """One namespace. `fd` keeps it alive and names it for other commands."""

    def __init__(self, name: str, number: int, fd: int) -> None:
        self.name, self.address, self.fd = name, f"{_NETWORK}.{number}", fd

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def enter(self) -> None:
        """Move the calling thread into the host's network."""
        _call("setns", self.fd, CLONE_NEWNET)

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, called in a thread in the host's network."""
        return in_thread(self.enter, work)


class Network:
    def __init__(self, names: Iterable[tuple[str, int]]) -> None:
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "br0", "type", "bridge")
        command("ip", "address", "add", f"{_NETWORK}.254/24", "dev", "br0")
        command("ip", "link", "set", "br0", "up")
        # The relay's packets are routed to the bridge, from addresses that are behind the bridge.
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0")
        Path("/proc/sys/net/ipv4/conf/default/rp_filter").write_text("0")
        self.hosts = {name: self._host(name, number) for name, number in names}
        self._relays: dict[str, subprocess.Popen[bytes]] = {}
        self._rules: list[str] = []
        self._apply()

    def close(self) -> None:
        for name in list(self._relays):
            self.delay(name, 0)
        for host in self.hosts.values():
            os.close(host.fd)

    # Faults

    def cut(self, sources: Iterable[str], targets: Iterable[str], *, one_way: bool = False) -> None:
        """Drop every packet from the sources to the targets, and back unless `one_way`."""
        for source in sources:
            for target in targets:
                self._rules.append(f"{self._flow(source, target)} drop")
                if not one_way:
                    self._rules.append(f"{self._flow(target, source)} drop")
        self._apply()

    def lose(self, name: str, percent: int) -> None:
        """Drop a random part of the packets from and to the host."""
        address = self.hosts[name].address
        chance = f"numgen random mod 100 < {percent} drop"
        self._rules += [f"ip saddr {address} {chance}", f"ip daddr {address} {chance}"]
        self._apply()

    def limit(self, name: str, rate: str) -> None:
        """Limit the bandwidth from and to the host, such as `2mbit`."""
        bucket = ("tbf", "rate", rate, "burst", "32kb", "latency", "200ms")
        command("tc", "qdisc", "replace", "dev", f"p-{name}", "root", *bucket)
        self.hosts[name].run(
            lambda: command("tc", "qdisc", "replace", "dev", "eth0", "root", *bucket)
        )

    def delay(self, name: str, delay_ms: int) -> None:
        """Delay every packet that leaves the host; 0 ends it."""
        relay = self._relays.pop(name, None)
        if relay is not None:
            relay.terminate()
            relay.wait()
        if not delay_ms:
            return
        host = self.hosts[name]
        arguments = [sys.executable, "-m", "tests.fire.delay_relay", host.path, str(delay_ms)]
        relay = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        assert relay.stdout is not None
        if relay.stdout.readline() != b"ready\n":
            raise NetworkError(f"the relay of {name} ended with {relay.wait()}")
        self._relays[name] = relay
        command("ip", "link", "set", "slow-out", "up")
        host.run(lambda: _route_through("slow-in", host.address))

    def heal(self) -> None:
        """End every fault."""
        self._rules.clear()
        self._apply()
        for name, host in self.hosts.items():
            self.delay(name, 0)
            _remove_limit(f"p-{name}")
            host.run(lambda: _remove_limit("eth0"))

    # Parts

    def _host(self, name: str, number: int) -> Host:
        host = Host(name, number, in_thread(lambda: _call("unshare", CLONE_NEWNET), _open_own))
        veth = ("type", "veth", "peer", "name", "eth0", "netns", host.path)
        command("ip", "link", "add", f"p-{name}", *veth)
        command("ip", "link", "set", f"p-{name}", "master", "br0", "up")

        def set_up() -> None:
            command("ip", "link", "set", "lo", "up")
            command("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            command("ip", "link", "set", "eth0", "up")

        host.run(set_up)
        return host

    def _flow(self, source: str, target: str) -> str:
        return f"ip saddr {self.hosts[source].address} ip daddr {self.hosts[target].address}"

    def _apply(self) -> None:
        """Replace all rules at once. The hooks see packets between ports and those of the relay."""
        rules = "\n".join(self._rules)
        chains = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0;\n{rules}\n}}\n"
            for hook in ("forward", "output")
        )
        text = f"table bridge fire\ndelete table bridge fire\ntable bridge fire {{\n{chains}}}\n"
        command("nft", "-f", "-", given=text)


def in_thread(first: Callable[[], object], work: Callable[[], T]) -> T:
    """Call both in a new thread; return the result of the second."""
    results: list[T] = []
    errors: list[BaseException] = []

    def main() -> None:
        try:
            first()
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=main, name="host")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def command(*words: str, given: str | None = None) -> None:
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}{given}")


def _remove_limit(device: str) -> None:
    """Fails if there is none, which is fine."""
    subprocess.run(["tc", "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)


def _route_through(device: str, address: str) -> None:
    command("ip", "link", "set", device, "up")
    # More specific than the route of eth0, so that packets of open connections take it at once.
    command("ip", "route", "add", f"{_NETWORK}.0/25", "dev", device, "src", address)


def _open_own() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _call(name: str, *arguments: int) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
