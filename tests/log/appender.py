"""A process that appends until it is killed, and prints what it appended: python -m
tests.log.appender DIRECTORY SEED."""

from __future__ import annotations

import os
import random
import sys

from penstock.config.topic import LogConfig
from penstock.records.build import build_batch
from penstock.records.compression import Codec
from penstock.world import World
from penstock.world.real import run
from tests.log.making import PARTITION, TOPIC_ID, open_store

CONFIG = LogConfig(segment_bytes=50_000, index_interval_bytes=500)


async def append_for_ever(world: World) -> None:
    rng = random.Random(int(sys.argv[2]))
    store = await open_store(world, sys.argv[1], CONFIG)
    log = store.logs.get(PARTITION) or store.create(PARTITION, TOPIC_ID, CONFIG)
    while True:
        count = rng.randrange(1, 20)
        values = [f"{log.end_offset + n}".encode() * rng.randrange(1, 50) for n in range(count)]
        batch = build_batch(
            [(None, value, (), 1_000) for value in values], codec=rng.choice(list(Codec))
        )
        appended = log.append_as_leader(batch, 0)
        if rng.random() < 0.01:
            await log.flushing.to(appended.end_offset)
            await store.offsets.save_recovery_points()
        os.write(1, f"{appended.end_offset}\n".encode())


if __name__ == "__main__":
    run(append_for_ever)
