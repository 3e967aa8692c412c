"""kill -9 of a process that appends: every record that it printed as appended is there, in order,
once (rules 1, 6, 21)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.records.batch import batches
from penstock.world import World
from penstock.world.real import run
from tests.log.appender import CONFIG
from tests.log.making import PARTITION, open_store, records

ROUNDS = int(os.environ.get("PENSTOCK_KILL_ROUNDS", "20"))


def append_until_killed(path: Path, seed: int, lines: int) -> int:
    """Return the end offset that the process printed last."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.log.appender", str(path), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        printed += process.stdout.read().splitlines(keepends=True)
    # The last line may be incomplete: the process died while it wrote.
    return int([line for line in printed if line.endswith("\n")][-1])


def test_rounds_of_kill_9(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    rng = random.Random(20)
    end = 0

    async def check(world: World) -> None:
        store = await open_store(world, str(tmp_path), CONFIG)
        log = store.logs[PARTITION]
        assert log.end_offset >= end
        found = records(log)
        assert [record.offset for record in found] == list(range(log.end_offset))
        assert all(
            (record.value or b"").startswith(str(record.offset).encode()) for record in found
        )
        for number, segment in enumerate(log.segments):
            read = segment.file.pread(segment.size, 0)
            positions = {header.last_offset: position for position, header in batches(read)}
            index = segment.offset_index
            assert all(
                positions[index[n].offset] == index[n].position for n in range(len(index))
            ), f"index of segment {number}"

    for seed in range(ROUNDS):
        before, end = end, append_until_killed(tmp_path, seed, rng.randrange(5, 300))
        assert end > before
        run(check)
    record_property("note", f"kill -9: {ROUNDS} rounds, {end:,} records acknowledged and found")
