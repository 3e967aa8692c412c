"""Run Kafka's DumpLogSegments over files, and find the problems it reports.

The tool always exits with 0, and reports problems in many formats. Every line that is not a known
line of a healthy file counts as a problem.
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
_GAPS = re.compile(
    r"Non-consecutive offsets in \S+/(\d{20})\.log\n((?:  -?\d+ is followed by \d+\n)+)"
)
# Compaction keeps a producer's last batch without its records. The header has their largest
# timestamp, but the tool looks for it only in records.
_TIME_OF_AN_EMPTY_BATCH = re.compile(
    r"Found timestamp mismatch in :\S+\n(?:  Index timestamp: \d+, log timestamp: -1\n)+"
)


def dump(
    files: Sequence[Path], flags: Sequence[str], *, compacted: bool = False
) -> tuple[str, list[str]]:
    """Return the tool's output and the lines that report problems. Gaps and empty batches of a
    compacted log are not problems."""
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        f"{fetch_jars()}/*",
        TOOL,
        *flags,
        "--files",
        ",".join(map(str, files)),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    complaints = [line for line in done.stdout.splitlines() if not _HEALTHY.fullmatch(line)]
    complaints += _complaints_on_stderr(done.stderr, compacted)
    if done.returncode != 0:
        complaints.append(f"{TOOL} ended with {done.returncode}")
    return done.stdout, complaints


def _complaints_on_stderr(text: str, compacted: bool) -> list[str]:
    def unless_sound(found: re.Match[str]) -> str:
        start = int(found[1])
        gaps = [
            (int(before), int(after))
            for before, after in re.findall(r"(-?\d+) is followed by (\d+)", found[2])
        ]
        # DumpLogSegments 4.3.0 wrongly expects offset 0 at the start of every file.
        sound = all(
            (before, after) == (-1, start) or (compacted and max(before, start - 1) < after)
            for before, after in gaps
        )
        return "" if sound else found[0]

    left = _GAPS.sub(unless_sound, text)
    return (_TIME_OF_AN_EMPTY_BATCH.sub("", left) if compacted else left).splitlines()


def dumped_batches(printed: str) -> Iterator[dict[str, str]]:
    """Return the fields of every printed batch, with Kafka's names."""
    for line in printed.splitlines():
        if line.startswith("baseOffset: "):
            yield dict(re.findall(r"(\w+): (\S+)", line))


def dumped_records(printed: str) -> Iterator[tuple[int, str, str]]:
    """Return offset, key and value of every printed record, as printed."""
    for line in printed.splitlines():
        if found := re.fullmatch(
            r"\| offset: (\d+) .* headerKeys: \[\] key: (.*) payload: (.*)", line
        ):
            yield int(found[1]), found[2], found[3]


def dumped_metadata(printed: str) -> list[tuple[str, dict[str, Any]]]:
    """Return type and data of every printed metadata record, and the name of every control
    record."""
    records: list[tuple[str, dict[str, Any]]] = []
    for line in printed.splitlines():
        if line.startswith("| offset: "):
            name, fields = re.findall(r" headerKeys: \[\] (\w+):? (.*)", line)[0]
            # Records that the decoder cannot read are printed as text, not JSON.
            decoded = json.loads(fields)
            records.append(
                (decoded["type"], decoded["data"]) if name == "payload" else (name, decoded)
            )
    return records
