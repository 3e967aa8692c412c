"""kcat, a command line client based on librdkafka.

It cannot create topics (the broker does, when kcat produces) or set timestamps.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.compat.client_under_test import (
    DEADLINE_S,
    MAX_REQUEST_BYTES,
    Abilities,
    Got,
    Headers,
    Sent,
)

KCAT = shutil.which("kcat")
# Partition, offset, timestamp, key length (-1 is null), value length, headers; then the bytes of
# key and value.
_FORMAT = "%p %o %T %K %S %h\n%k%s"


class KcatError(Exception):
    """kcat failed; the message is kcat's."""


class KcatClient:
    abilities = Abilities(timestamps=False, admin=False)

    def __init__(self, bootstrap_servers: str) -> None:
        self._where = bootstrap_servers

    def create_topic(self, topic: str, partitions: int) -> None:
        if partitions != 1:
            raise KcatError(
                "a topic that the broker creates by itself has num.partitions partitions, 1 by "
                "default"
            )
        deadline = time.monotonic() + DEADLINE_S
        while (
            self._asked_for(topic) == 0 and time.monotonic() < deadline
        ):  # Apache Kafka creates it behind the answer
            continue

    def _asked_for(self, topic: str) -> int:
        """Return the number of partitions; the metadata request creates the topic."""
        return _partitions(self._run("-L", "-t", topic, "-X", "allow.auto.create.topics=true")).get(
            topic, 0
        )

    def topics(self) -> dict[str, int]:
        return _partitions(self._run("-L"))

    def produce(
        self, topic: str, records: list[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """Call kcat once per run of records with equal key and headers; a call takes one of each.
        kcat reports no offsets."""
        options = [
            "-z",
            codec,
            "-X",
            f"enable.idempotence={str(idempotent).lower()}",
            "-X",
            f"message.max.bytes={MAX_REQUEST_BYTES}",
        ]
        with tempfile.TemporaryDirectory() as directory:
            for run in _runs(records):
                self._run(
                    "-P",
                    "-t",
                    topic,
                    "-p",
                    str(run[0].partition),
                    *options,
                    *_same(run[0]),
                    *_files(Path(directory), run),
                )
        return []

    def read_all(self, topic: str, partitions: int, count: int) -> list[Got]:
        if partitions != 1:
            raise KcatError("this test reads only one partition with kcat")
        return self._read(topic, 0, "beginning", count)

    def read_from(self, topic: str, partition: int, offset: int, count: int) -> list[Got]:
        return self._read(topic, partition, str(offset), count)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}").decode()
        found = re.search(r"offset (-?\d+)", answer)
        if found is None:
            raise KcatError(f"kcat -Q printed {answer!r}")
        return None if int(found[1]) < 0 else int(found[1])

    def _read(self, topic: str, partition: int, start: str, count: int) -> list[Got]:
        return _parse(
            self._run(
                "-C",
                "-q",
                "-t",
                topic,
                "-p",
                str(partition),
                "-o",
                start,
                "-c",
                str(count),
                "-f",
                _FORMAT,
            )
        )

    def _run(self, *arguments: str) -> bytes:
        command = [KCAT or "kcat", "-b", self._where, *arguments]
        done = subprocess.run(
            command, capture_output=True, timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise KcatError(
                f"{' '.join(command[:6])} ... ended with {done.returncode}: "
                f"{done.stderr.decode(errors='replace')[-2000:]}"
            )
        return done.stdout


def _partitions(listed: bytes) -> dict[str, int]:
    return {
        name: int(count)
        for name, count in re.findall(r'topic "(.+?)" with (\d+) partitions', listed.decode())
    }


def _runs(records: list[Sent]) -> list[list[Sent]]:
    runs: list[list[Sent]] = []
    for record in records:
        if runs and (runs[-1][0].partition, runs[-1][0].key, runs[-1][0].headers) == (
            record.partition,
            record.key,
            record.headers,
        ):
            runs[-1].append(record)
        else:
            runs.append([record])
    return runs


def _same(record: Sent) -> list[str]:
    options = [] if record.key is None else ["-k", record.key.decode()]
    return options + [
        part for name, value in record.headers for part in ("-H", f"{name}={value.decode()}")
    ]


def _files(directory: Path, records: list[Sent]) -> list[str]:
    """Write one file per record, the only way to give kcat values with arbitrary bytes."""
    names = []
    for number, record in enumerate(records):
        path = directory / str(number)
        path.write_bytes(record.value or b"")
        names.append(str(path))
    return names


def _parse(output: bytes) -> list[Got]:
    found, position = [], 0
    while position < len(output):
        end = output.index(b"\n", position)
        partition, offset, timestamp, key_size, value_size, headers = output[position:end].split(
            b" ", 5
        )
        key_end = end + 1 + max(int(key_size), 0)
        position = key_end + max(int(value_size), 0)
        key = None if int(key_size) < 0 else output[end + 1 : key_end]
        value = None if int(value_size) < 0 else output[key_end:position]
        found.append(
            Got(int(partition), int(offset), int(timestamp), key, value, _headers(headers))
        )
    return found


def _headers(text: bytes) -> Headers:
    pairs = [pair.split(b"=", 1) for pair in text.split(b",") if pair]
    return tuple((name.decode(), value) for name, value in pairs)
