"""A node that recovers another log directory on its own event loop when it is told to, and prints its loop delay when it ends.

    python -m tests.e2e.loop_delay_node DIRECTORY OTHER_DIRECTORY KEY=VALUE ...

It prints "ready HOST:PORT". A line on stdin makes it open OTHER_DIRECTORY, and print "recovered SECONDS"; the end of stdin ends it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from penstock.config.node import NodeConfig, read_node_config
from penstock.config.topic import log_config
from penstock.log.directory import formatted_directory
from penstock.log.store import LogStore
from penstock.node.formatting import format_directories
from penstock.start import serving
from penstock.world import World
from penstock.world.real import RealChance, RealDisk, run

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={directory}
"""


async def serve(world: World, config: NodeConfig, other: str) -> None:
    loop = asyncio.get_running_loop()
    async with serving(world, config) as (_node, bootstrap):
        say(f"ready {bootstrap}")
        while await loop.run_in_executor(None, sys.stdin.readline):
            start = time.monotonic()
            await LogStore(world, [formatted_directory(world.disk, other, config.node_id)]).open(lambda _: log_config(config, {}))
            say(f"recovered {time.monotonic() - start:.2f}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(directory: str, other: str, *settings: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    overrides = dict(setting.split("=", 1) for setting in settings)
    config = read_node_config(PROPERTIES.format(directory=directory).encode(), "loop_delay_node", overrides)
    format_directories(RealDisk(), RealChance(), config, None, ignore_formatted=True, say=lambda _line: None)
    run(lambda world: serve(world, config, other))


if __name__ == "__main__":
    main(*sys.argv[1:])
