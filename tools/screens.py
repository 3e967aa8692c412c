"""python -m tools.screens: take the screens of docs/CLI.md again, in a real terminal (tmux).

Starts three brokers, producers and a consumer group, types each command into a terminal of 150
columns, waits until its output is there, and replaces the block of the screen's name in the
document. A screen is a block after a line `<!-- screen: NAME -->`.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

DOCUMENT = Path(__file__).parent.parent / "docs" / "CLI.md"
BIN = Path(sys.executable).parent
COLUMNS, LINES = 150, 26
DEADLINE_S = 60.0
POLL_S = 0.1
PROMPT = "$ "
TOPICS = {"orders": (1, 300), "payments": (2, 120), "clicks": (3, 40)}


class Screen(NamedTuple):
    """`typed` are lines and keys, each after the text before it has appeared; the screen is taken
    when `shows` matches. The command `stays` for the next screen, or `ends` by a key, or by
    itself."""

    name: str
    typed: tuple[tuple[str, str], ...]
    shows: str
    stays: bool = False
    ends: str = ""


# The prompt below the output of a command that has ended.
_DONE = r"(?s)\$ penstock.*\n\$ *\n*\Z"
_ENDED = r"penstock top --interval 1\n\$"
_RATES = r"(?s)orders +6 +3 .* \d\d+ +\d\.\d\d.*billing +\w+ +\w+ +\d+ +[\d,]+ +[+-]?\d"


def command(name: str, words: str, shows: str = _DONE) -> Screen:
    return Screen(name, (("", f"penstock {words}\n"),), shows)


SCREENS = (
    Screen("top", (("", "penstock top --interval 1\n"),), _RATES, stays=True),
    Screen(
        "top topics", (("", "2"),), r"(?s)\A(?!.*BROKERS).*TOPICS \d.* \d\d+ +\d\.\d\d", stays=True
    ),
    Screen(
        "top broker down", (("", "0"), ("BROKERS", "KILL")), r"fenced.*\n(?s:.*)q quit", ends="q"
    ),
    command("topics list", "topics list"),
    command("topics describe", "topics describe orders"),
    command("groups describe", "groups describe billing --over 2"),
    command("brokers list", "brokers list"),
    command("quorum describe", "quorum describe --replication"),
    command("nodes list", "nodes list --dir data"),
    command("profile list", "profile list"),
    Screen(
        "topics delete",
        (("", "penstock topics delete clicks\n"), (r"\[y/N\]", "n\n")),
        r"Nothing was changed",
    ),
    command("pipe", "topics delete clicks < /dev/null; echo exit code $?", r"exit code \d"),
    command("help", "groups describe --help"),
)


class Terminal:
    """A terminal of a tmux server of our own."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-L", f"penstock-{os.getpid()}"]
        self._run(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES)),
            *("-c", str(directory), "env", f"PS1={PROMPT}", "bash", "--noprofile", "--norc"),
            environment=environment,
        )

    def type(self, text: str) -> None:
        for part in re.split(r"(\n)", text):
            if part == "\n":
                self._run("send-keys", "Enter")
            elif part:
                self._run("send-keys", "-l", part)

    def clear(self) -> None:
        self._run("send-keys", "C-l")
        self.wait_for(r"\A\$ *\s*\Z")

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, text := self.text()):
            if time.monotonic() > deadline:
                raise SystemExit(f"{pattern!r} did not appear:\n{text}")
            time.sleep(POLL_S)
        return text

    def close(self) -> None:
        self._run("kill-server")

    def _run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout


class Cluster:
    """Three brokers with topics, producers at different rates, and a group that lags behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(directory / "config"),
            "TERM": "xterm-256color",
        }
        self._stopping = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        up = self._start("up", "--brokers", "3", "--port", str(_port()), "--dir", "data")
        assert up.stdout is not None
        ready = up.stdout.readline().decode()
        servers = ready.strip().partition("bootstrap.servers=")[2]
        if not servers:
            raise SystemExit(f"penstock up does not serve: {ready!r}")
        self.run("profile", "add", "shop", "--bootstrap-server", servers)
        self.run("profile", "use", "shop")
        for topic in TOPICS:
            self.run("topics", "create", topic, "--partitions", "6", "--replication-factor", "3")
        for topic, (pause, count) in TOPICS.items():
            producer = self._start("produce", topic, "--key-separator", "=")
            assert producer.stdin is not None
            arguments = (producer.stdin, pause / 10, count)
            self._threads.append(threading.Thread(target=self._feed, args=arguments))
        self._start("consume", "orders", "--group", "billing", "--from-beginning", "--json")
        for thread in self._threads:
            thread.start()

    def run(self, *words: str) -> None:
        subprocess.run(
            [BIN / "penstock", *words],
            env=self.environment,
            cwd=self._directory,
            check=True,
            capture_output=True,
        )

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for process in reversed(self._processes):
            process.terminate()
            process.wait(DEADLINE_S)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [BIN / "penstock", *words],
            env=self.environment,
            cwd=self._directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if words[0] == "consume" else subprocess.PIPE,
        )
        self._processes.append(process)
        return process

    def _feed(self, stream: IO[bytes], pause_s: float, count: int) -> None:
        with contextlib.suppress(BrokenPipeError):
            while not self._stopping.wait(pause_s):
                stream.write(b"".join(b"%d=%s\n" % (key, b"x" * 200) for key in range(count)))
                stream.flush()


def _port() -> int:
    """Return 9092, or a free port if another broker has it."""
    for port in (9092, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise SystemExit("no port is free")


def take(cluster: Cluster, terminal: Terminal, directory: Path) -> Iterator[tuple[str, str]]:
    for screen in SCREENS:
        for before, typed in screen.typed:
            terminal.wait_for(before)
            if typed == "KILL":
                cluster.run("nodes", "kill", "3", "--dir", "data")
            else:
                terminal.type(typed)
        text = terminal.wait_for(screen.shows).replace(str(directory), "")
        lines = [line.rstrip() for line in text.rstrip().splitlines()]
        yield screen.name, "\n".join(lines).removesuffix(f"\n{PROMPT.strip()}").rstrip()
        if screen.stays:
            continue
        if screen.ends:
            terminal.type(screen.ends)
            terminal.wait_for(_ENDED)
            cluster.run("nodes", "restart", "3", "--dir", "data")
        terminal.clear()


def replaced(document: str, name: str, text: str) -> str:
    marker = f"<!-- screen: {name} -->\n```\n"
    start = document.index(marker) + len(marker)
    end = document.index("\n```", start - 1)
    return f"{document[:start]}{text}{document[end:]}"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-screens-") as name:
        directory = Path(name)
        cluster = Cluster(directory)
        try:
            cluster.start()
            terminal = Terminal(directory, cluster.environment)
            try:
                document = DOCUMENT.read_text()
                for screen, text in take(cluster, terminal, directory):
                    document = replaced(document, screen, text)
                DOCUMENT.write_text(document)
            finally:
                terminal.close()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
