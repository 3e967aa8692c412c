"""A node under mutated exchanges of clients that are not authenticated.

PENSTOCK_FUZZ=100000 (`make drill ONLY=fuzz`) tries as many of fresh seeds; without it a few
thousand of a fixed seed run.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.security.attacked_node import MEGABYTE, AttackedNode, attacked_node
from tests.security.bystander import Bystander
from tests.security.fuzzed_exchanges import Fuzz
from tests.security.node_processes import NodeProcess

EXCHANGES = int(os.environ.get("PENSTOCK_FUZZ", "2500"))
SEED = random.SystemRandom().randrange(10**9) if "PENSTOCK_FUZZ" in os.environ else 18
# What the allocator keeps of some tens of connections at once, each with 256 KB of buffers.
MEMORY_BYTES = 64 * MEGABYTE
# Refusals are logged at most five times a second, with their number.
LOG_BYTES_PER_S = 20_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    with attacked_node(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def test_mutated_exchanges_cost_nothing_but_their_connections(
    node: AttackedNode, record_property: Callable[[str, object], None]
) -> None:
    """No traceback, no bypass, no growth of memory or log, and another client works meanwhile."""
    process, targets = node.process, node.targets()
    # Modules are loaded and caches are filled by the first exchanges.
    asyncio.run(Fuzz(targets, seed=0).run(300))
    before, log_before = process.resident_bytes(), len(process.log)
    fuzz = Fuzz(targets, SEED)
    started = time.monotonic()
    with Bystander(node.cluster.servers("PLAINTEXT")) as bystander:
        peak = asyncio.run(watched(fuzz, process))
    seconds = time.monotonic() - started
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(fuzz.done.items()))
    note = (
        f"{EXCHANGES} mutated exchanges of seed {SEED} in {seconds:.0f} s ({kinds}); memory "
        f"{before / MEGABYTE:.0f} MB before, {peak / MEGABYTE:.0f} MB at most; log "
        f"{(len(process.log) - log_before) / 1000:.0f} kB; {bystander.report()}"
    )
    record_property("note", note)
    assert "Traceback" not in process.log
    assert "ERROR" not in process.log
    assert peak - before < MEMORY_BYTES, note
    assert len(process.log) - log_before < LOG_BYTES_PER_S * (10 + seconds), note
    bystander.check()
    assert fuzz.done["authenticated"] > 0, "mutations that change nothing of meaning must work"
    assert fuzz.done["refused"] > EXCHANGES // 10
    assert open_sockets(process) < 50, "connections of the attack must be closed"


async def watched(fuzz: Fuzz, node: NodeProcess) -> int:
    """Run the exchanges, and return the node's most memory."""
    peak = node.resident_bytes()
    task = asyncio.create_task(fuzz.run(EXCHANGES))
    while not task.done():
        await asyncio.wait([task], timeout=0.5)
        peak = max(peak, node.resident_bytes())
    task.result()
    return peak


def open_sockets(node: NodeProcess) -> int:
    """Return the number of sockets after the node has noticed which are closed."""
    deadline = time.monotonic() + 30
    while True:
        links = [file for file in Path(f"/proc/{node.pid}/fd").iterdir() if file.is_symlink()]
        count = sum(os.readlink(file).startswith("socket:") for file in links if file.is_symlink())
        if count < 50 or time.monotonic() > deadline:
            return count
        time.sleep(0.1)
