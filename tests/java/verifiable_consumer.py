"""Kafka's VerifiableConsumer as a process, a group member that prints its events as JSON lines.

It prints assigned and revoked partitions, consumed records and commits. Knows only the broker's
address; the tests check the events.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.java.kafka_jars import JAVA_TIMEOUT_S
from tests.java.kafka_tools import java

TOOL = "org.apache.kafka.tools.VerifiableConsumer"
SESSION_MS = 6_000
HEARTBEAT_MS = 500

Event = dict[str, Any]


def events(log: Path) -> list[Event]:
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def assert_committed_offsets_never_go_back(committed: list[Event]) -> None:
    highest: Counter[int] = Counter()
    for event in sorted(
        (commit for commit in committed if commit["success"]),
        key=lambda commit: commit["timestamp"],
    ):
        for committed_offset in event["offsets"]:
            partition, offset = committed_offset["partition"], committed_offset["offset"]
            assert offset >= highest[partition], event
            highest[partition] = offset


class JavaMember:
    """Consumes and commits until it leaves or is killed."""

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, group: str, name: str, *words: str
    ) -> None:
        self.name = name
        self.log = directory / name
        # When it lost its partitions without an event: it was killed, or paused past its session
        # timeout.
        self.gone_ms: list[int] = []
        given = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group]
        if "consumer" not in words:  # In the consumer protocol the broker sets these.
            settings = directory / "classic.properties"
            settings.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
            given += ["--command-config", str(settings), "--session-timeout", str(SESSION_MS)]
        with self.log.open("wb") as printed:
            self._process = subprocess.Popen(
                java(TOOL, *given, *words), stdout=printed, stderr=subprocess.STDOUT
            )

    def events(self) -> list[Event]:
        return events(self.log)

    def owned(self) -> frozenset[int]:
        return now_owned(self.events()) if self._process.poll() is None else frozenset()

    def terminate(self) -> None:
        """Send SIGTERM: the consumer closes and leaves its group. `ended` waits for it."""
        self._process.terminate()

    def ended(self) -> None:
        self._process.wait(JAVA_TIMEOUT_S)
        assert self.events()[-1]["name"] == "shutdown_complete", self.log.read_text()[-2000:]

    def kill(self) -> None:
        """Send SIGKILL."""
        self.gone_ms.append(_now_ms())
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self.gone_ms.append(_now_ms())
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ownership(self) -> Iterator[tuple[int, int, int]]:
        """Yield each partition with the start and end, in ms, of this member's ownership."""
        since: dict[int, int] = {}
        for event in [*self.events(), {"name": "end", "timestamp": _now_ms()}]:
            at = event["timestamp"]
            if event["name"] == "partitions_assigned":
                since |= dict.fromkeys(partitions_of(event), at)
            elif event["name"] in ("partitions_revoked", "shutdown_complete", "end"):
                for partition in (
                    partitions_of(event) if event["name"] == "partitions_revoked" else tuple(since)
                ):
                    start = since.pop(partition)
                    yield (
                        partition,
                        start,
                        min([at, *(gone for gone in self.gone_ms if gone >= start)]),
                    )


def partitions_of(event: Event) -> list[int]:
    return [partition["partition"] for partition in event["partitions"]]


def now_owned(happened: Sequence[Event]) -> frozenset[int]:
    """Return a member's partitions after these events."""
    owned: frozenset[int] = frozenset()
    for event in happened:
        if event["name"] == "partitions_assigned":
            owned |= frozenset(partitions_of(event))
        elif event["name"] == "partitions_revoked":
            owned -= frozenset(partitions_of(event))
    return owned


def revoked(happened: Sequence[Event]) -> frozenset[int]:
    return frozenset(
        partition
        for event in happened
        if event["name"] == "partitions_revoked"
        for partition in partitions_of(event)
    )


def assert_one_owner_at_a_time(members: Sequence[JavaMember]) -> int:
    """Check, by the members' logs, that a partition is revoked before the next member gets it.

    All members have the same clock. Returns how often a partition was assigned.
    """
    spans = sorted(
        (partition, start, end, member.name)
        for member in members
        for partition, start, end in member.ownership()
    )
    for (partition, start, end, name), (other, next_start, next_end, next_name) in pairwise(spans):
        both = (
            f"{name} from {start} to {end}, and {next_name} from {next_start} to {next_end} "
            f"own partition {partition}"
        )
        assert partition != other or end <= next_start, both
    return len(spans)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
