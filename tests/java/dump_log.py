"""Kafka's DumpLogSegments, run over files, and what it has to complain of.

The tool exits with 0 whatever it finds, and its complaints have many forms. So everything it prints that is not one of the lines of a
healthy file is a complaint.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.java.kafka_jars import JAVA_TIMEOUT_S, fetch_jars

TOOL = "org.apache.kafka.tools.DumpLogSegments"
CONTENTS = ("--deep-iteration", "--print-data-log")
SANITY = ("--index-sanity-check",)
METADATA = ("--deep-iteration", "--cluster-metadata-decoder")
VERIFY = ("--verify-index-only",)

_HEALTHY = re.compile(
    r"Dumping \S+"
    r"|Log starting offset: \d+"
    r"|Snapshot end offset: \d+, epoch: \d+"
    r"|baseOffset: .* isvalid: true.*"
    r"|\| offset: .*"
    r"|offset: \d+ position: \d+"
    r"|timestamp: -?\d+ offset: \d+"
    r"|version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+"
    r"|producerId: \d+ producerEpoch: .*"
    r"|\S+ passed sanity check\."
    r"|\S+ is empty\."
)
# DumpLogSegments of 4.3.0 takes -1 for the offset before the first of every file: an error of its own.
_BEFORE_THE_FIRST = re.compile(r"Non-consecutive offsets in \S+/(\d{20})\.log\n  -1 is followed by (\d+)\n")


def dump(files: Sequence[Path], flags: Sequence[str]) -> tuple[str, list[str]]:
    """What the tool printed, and the lines among it that are complaints."""
    command = ["java", "-Xmx256m", "-cp", f"{fetch_jars()}/*", TOOL, *flags, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=JAVA_TIMEOUT_S, check=False)
    complaints = [line for line in done.stdout.splitlines() if not _HEALTHY.fullmatch(line)]
    complaints += _complaints_on_stderr(done.stderr)
    if done.returncode != 0:
        complaints.append(f"{TOOL} ended with {done.returncode}")
    return done.stdout, complaints


def _complaints_on_stderr(text: str) -> list[str]:
    def of_its_own(found: re.Match[str]) -> str:
        return "" if int(found[1]) == int(found[2]) else found[0]

    return _BEFORE_THE_FIRST.sub(of_its_own, text).splitlines()


def dumped_batches(printed: str) -> Iterator[dict[str, str]]:
    """The fields of every batch that was printed, by Kafka's names."""
    for line in printed.splitlines():
        if line.startswith("baseOffset: "):
            yield dict(re.findall(r"(\w+): (\S+)", line))


def dumped_metadata(printed: str) -> list[tuple[str, dict[str, Any]]]:
    """Type and data of every metadata record that was printed, and the name of every control record."""
    records: list[tuple[str, dict[str, Any]]] = []
    for line in printed.splitlines():
        if line.startswith("| offset: "):
            name, fields = re.findall(r" headerKeys: \[\] (\w+):? (.*)", line)[0]
            # What the decoder cannot read is no JSON but a sentence.
            decoded = json.loads(fields)
            records.append((decoded["type"], decoded["data"]) if name == "payload" else (name, decoded))
    return records
