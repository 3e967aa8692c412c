"""Defects that Penstock once had in the metadata quorum and in the shards, planted again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.node.quorum import snapshot_file
from penstock.node.shards.shard import Shard
from penstock.raft import follower as raft_follower
from penstock.raft import leader as raft_leader
from penstock.sim.harness import replaced


def uncommitted_metadata_is_applied() -> AbstractContextManager[None]:
    """A node that must install a snapshot first applies its own log up to the snapshot's end,
    although that may differ from what was committed."""

    def make(install: Any) -> Any:
        def early(quorum: Any, state: Any, snapshot: Any) -> None:
            quorum.advance_high_watermark(min(snapshot.offset, quorum.log.end.offset))
            install(quorum, state, snapshot)

        return early

    return replaced(raft_follower, "_install_snapshot", make)


def damaged_snapshots_are_served_and_loaded() -> AbstractContextManager[None]:
    """A flipped bit in a snapshot of the metadata is not noticed."""
    return replaced(snapshot_file, "_check_crc", lambda _original: lambda *_args: None)


def snapshot_pieces_are_no_contact() -> AbstractContextManager[None]:
    """A quorum leader steps down while the only other voter fetches a snapshot from it."""
    return replaced(
        raft_leader, "handle_snapshot_piece_served", lambda _original: lambda *_args: None
    )


@contextlib.contextmanager
def sessions_run_while_nothing_can_be_written() -> Iterator[None]:
    """While too few replicas of the offsets topic are in sync, heartbeats are refused, and members
    time out."""

    def make(decide: Any) -> Any:
        def refuse(shard: Any, step: Any, refused: Any, **_kwargs: Any) -> Any:
            return decide(shard, step, refused, needs_writes=True)

        return refuse

    with (
        replaced(Shard, "decide", make),
        replaced(Shard, "_now", lambda _original: lambda shard: shard._clock.now(is_running=True)),
    ):
        yield


PLANTED_DEFECTS = (
    uncommitted_metadata_is_applied,
    damaged_snapshots_are_served_and_loaded,
    snapshot_pieces_are_no_contact,
    sessions_run_while_nothing_can_be_written,
)
