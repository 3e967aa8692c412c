"""Snapshots between the nodes of a simulated quorum: installed, damaged, long (rules 17, 18, 20
and 25)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.errors import KafkaError
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.quorum import quorum as quorum_module
from penstock.node.quorum.quorum import Quorum
from penstock.raft.log import OffsetAndEpoch
from penstock.sim.quorum.node import Listener
from tests.node.simulated_quorum import RESOURCE, SimulatedQuorum, setting, settings_of

# A snapshot every few records.
SMALL = {"metadata.log.max.record.bytes.between.snapshots": 400, "log.segment.bytes": 2_000}


async def try_to_append(quorum: Quorum, name: str) -> None:
    """Append a setting. The quorum may lose its leader before it is committed."""
    try:
        async with asyncio.timeout(0.5):
            await quorum.append(setting(name))
    except (KafkaError, TimeoutError):
        return


def test_uncommitted_records_are_not_applied_while_a_snapshot_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader is isolated while it applies a long image. Its uncommitted records are replaced by a
    snapshot of the next leader before it has finished."""
    monkeypatch.setattr(quorum_module, "PUBLISH_PAUSE_S", 0.004)
    members = SimulatedQuorum(11, SMALL)
    applied: set[str] = set()
    busy: set[int] = set()

    def on_applied(node_id: int, image: MetadataImage, _delta: MetadataDelta) -> Iterator[None]:
        applied.update(image.configs.get(RESOURCE, {}))
        while node_id in busy:
            yield

    async def main() -> None:
        for node_id in (1, 2, 3):
            members.listeners[node_id] = Listener(partial(on_applied, node_id))
        members.start(1, 2, 3)
        old = await members.active()
        await old.append(setting("short"))
        busy.add(old.node_id)
        await try_to_append(old, "long")
        others = [node_id for node_id in (1, 2, 3) if node_id != old.node_id]
        members.simulation.network.partition(
            [f"c{old.node_id}"], [f"c{node_id}" for node_id in others]
        )
        await asyncio.gather(*(try_to_append(old, f"uncommitted.{number}") for number in range(3)))
        assert old.high_watermark < old.log_end_offset
        await members.until(lambda: any(members.quorums[other].is_leader for other in others))
        new = next(members.quorums[other] for other in others if members.quorums[other].is_leader)
        number = 0
        while new._log.start_offset <= old.log_end_offset:
            await new.append(setting(f"new.{number}"))
            await asyncio.sleep(0.1)
            number += 1
        load = old._log.snapshots.load

        async def slow_load(snapshot: OffsetAndEpoch) -> MetadataImage:
            busy.clear()
            await asyncio.sleep(1.0)
            return await load(snapshot)

        monkeypatch.setattr(old._log.snapshots, "load", slow_load)
        members.simulation.network.heal()
        await members.until(lambda: settings_of(old) == settings_of(new))
        assert not busy

    members.simulation.run(main())
    assert "long" in applied
    assert applied.isdisjoint({f"uncommitted.{number}" for number in range(3)})
