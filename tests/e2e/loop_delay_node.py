"""A node that recovers another log directory on its event loop on request, and reports its loop
delay when it ends.

    python -m tests.e2e.loop_delay_node DIRECTORY OTHER_DIRECTORY KEY=VALUE ...

It prints "ready HOST:PORT". An empty line on stdin makes it open OTHER_DIRECTORY, and print
"recovered SECONDS". A line "TOPIC OFFSET" makes it open OTHER_DIRECTORY, truncate partition 0 of a
topic there, and print "truncated SECONDS". The end of stdin ends it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time

from penstock.config.node import NodeConfig, read_node_config
from penstock.config.topic import log_config
from penstock.ids import TopicPartition
from penstock.log.directory import formatted_directory
from penstock.log.store import LogStore
from penstock.node.broker.formatting import format_directories
from penstock.server.loop_delay import LoopDelay
from penstock.start import serving
from penstock.world import World
from penstock.world.real import RealDisk, RealRng, run

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={directory}
"""


class ThreadClock:
    """A clock that stops while the loop's thread is runnable but does not run, because another
    process has the core or the hypervisor took it away.

    The two may overlap; the longer one counts.
    """

    def __init__(self) -> None:
        self._scheduling = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._thread = os.open("/proc/thread-self/stat", os.O_RDONLY)
        self._machine = os.open("/proc/stat", os.O_RDONLY)
        self._queued, self._stolen, self._lost = self._queued_s(), self._stolen_s(), 0.0

    def monotonic(self) -> float:
        queued, stolen = self._queued_s(), self._stolen_s()
        core = self._core()
        self._lost += max(queued - self._queued, stolen[core] - self._stolen[core])
        self._queued, self._stolen = queued, stolen
        return time.monotonic() - self._lost

    def _queued_s(self) -> float:
        return int(os.pread(self._scheduling, 100, 0).split()[1]) / 1e9

    def _core(self) -> int:
        return int(os.pread(self._thread, 1_000, 0).rpartition(b")")[2].split()[36])

    def _stolen_s(self) -> list[float]:
        """Return the stolen time of each core."""
        cores = os.pread(self._machine, 100_000, 0).split(b"\n")[1 : 1 + (os.cpu_count() or 1)]
        return [int(core.split()[8]) / os.sysconf("SC_CLK_TCK") for core in cores]

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


async def serve(world: World, config: NodeConfig, other: str) -> None:
    loop = asyncio.get_running_loop()
    own = LoopDelay(ThreadClock())
    async with serving(world, config) as (_node, bootstrap):
        # `penstock start` does the same.
        gc.collect()
        gc.freeze()
        say(f"ready {bootstrap}")
        own.start()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            start = time.monotonic()
            store = LogStore(world, [formatted_directory(world.disk, other, config.node_id)])
            await store.open(lambda _: log_config(config, {}))
            if line.strip():
                topic, offset = line.split()
                await store.truncate({TopicPartition(topic, 0): int(offset)})
                say(f"truncated {time.monotonic() - start:.2f}")
            else:
                say(f"recovered {time.monotonic() - start:.2f}")
        own.stop()
        say(f"own {own}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(directory: str, other: str, *settings: str) -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s"
    )
    overrides = dict(setting.split("=", 1) for setting in settings)
    config = read_node_config(
        PROPERTIES.format(directory=directory).encode(), "loop_delay_node", overrides
    )
    format_directories(
        RealDisk(), RealRng(), config, None, ignore_formatted=True, say=lambda _line: None
    )
    run(lambda world: serve(world, config, other))


if __name__ == "__main__":
    main(*sys.argv[1:])
