"""The client side of the benchmarks: rdkafka_load.c and the topics it writes and reads.

The C program is compiled against the librdkafka of confluent-kafka's wheel. Knows only bootstrap
addresses, not which system is behind them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

MB = 1_000_000
RUN_TIMEOUT_S = 600
ADMIN_TIMEOUT_S = 60
SOURCE = Path(__file__).parent / "rdkafka_load.c"
NO_CONFIGS: MappingProxyType[str, str] = MappingProxyType({})


class Latency(NamedTuple):
    """Percentiles in milliseconds; `behind_s` is the delay of the last record against the rate."""

    p50: float
    p99: float
    p999: float
    behind_s: float


class Transactions(NamedTuple):
    """Transactions of one producer: `records` of each, over all partitions in turn. Every
    `aborted`-th is aborted."""

    partitions: int
    size: int
    records: int
    number: int
    aborted: int = 0


class Load:
    """Runs the C program once per measurement, so that no round starts with a warm client."""

    def __init__(self, directory: Path) -> None:
        self._program = _compile(directory)

    def produce(
        self, bootstrap: str, topic: str, size: int, count: int, settings: tuple[str, ...] = ()
    ) -> float:
        """Return the seconds until all records are acknowledged."""
        return self._run("produce", bootstrap, topic, str(size), str(count), *settings)[0]

    def consume(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        count: int,
        settings: tuple[str, ...] = (),
    ) -> float:
        """Return the seconds until all records are consumed."""
        return self._run("consume", bootstrap, topic, str(partitions), str(count), *settings)[0]

    def transactions(
        self, bootstrap: str, topic: str, shape: Transactions, settings: tuple[str, ...] = ()
    ) -> float:
        """Return the seconds that these transactions take, one after the other."""
        numbers = (shape.partitions, shape.size, shape.records, shape.number, shape.aborted)
        settings = (f"transactional.id={topic}", *settings)
        return self._run("transactions", bootstrap, topic, *map(str, numbers), *settings)[0]

    def latency(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: int,
        seconds: int,
        settings: tuple[str, ...] = (),
    ) -> Latency:
        """Measure the end-to-end latency of 100-byte records sent round-robin."""
        shape = (str(partitions), "100", str(rate), str(seconds))
        p50, p99, p999, _worst, _count, behind = self._run(
            "latency", bootstrap, topic, *shape, *settings
        )
        return Latency(p50, p99, p999, behind)

    def _run(self, *arguments: str) -> list[float]:
        done = subprocess.run(
            [self._program, *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"rdkafka_load {' '.join(arguments)} failed: {done.stderr}")
        return [float(word) for word in done.stdout.split()]


class Topic:
    """A topic for one measurement, deleted after it: data that is deleted soon is not written to
    disk and does not slow the next round."""

    def __init__(
        self,
        bootstrap: str,
        partitions: int,
        factor: int = 1,
        configs: MappingProxyType[str, str] = NO_CONFIGS,
        client: Mapping[str, str] = NO_CONFIGS,
    ) -> None:
        """`client` are the settings that a client of librdkafka needs to connect."""
        self.name = f"bench-{uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **client})
        topic = NewTopic(
            self.name, partitions, factor, config={"file.delete.delay.ms": "1000", **configs}
        )
        self._admin.create_topics([topic])[self.name].result(ADMIN_TIMEOUT_S)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_error: object) -> None:
        self._admin.delete_topics([self.name])[self.name].result(ADMIN_TIMEOUT_S)


@dataclass(frozen=True)
class Case:
    """The records that one round produces or consumes."""

    size: int
    partitions: int
    total: int
    settings: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self.total // self.size

    @property
    def name(self) -> str:
        size = {100: "100-B", 1_000: "1-KB"}[self.size]
        return (
            f"{size} records, {self.settings[0] if self.settings else 'default batching'}, "
            f"{self.partitions} partition(s)"
        )

    def rates(self, seconds: float) -> list[float]:
        """Return MB/s and thousand records/s."""
        return [self.count * self.size / MB / seconds, self.count / seconds / 1_000]


def _compile(directory: Path) -> Path:
    compiler = shutil.which("cc")
    libraries = sorted(
        (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob(
            "librdkafka-*.so*"
        )
    )
    if compiler is None or not libraries:
        raise SystemExit(
            "this benchmark needs a C compiler (cc) and confluent-kafka's Linux wheel, which "
            "includes librdkafka"
        )
    program, library = directory / "rdkafka_load", libraries[0]
    # The libraries that librdkafka needs are in the same directory of the wheel.
    linking = [
        str(library),
        f"-Wl,-rpath,{library.parent}",
        f"-Wl,-rpath-link,{library.parent}",
        "-Wl,--allow-shlib-undefined",
    ]
    subprocess.run(
        [compiler, "-O2", "-Wall", "-o", str(program), str(SOURCE), *linking, "-lpthread"],
        check=True,
    )
    return program
