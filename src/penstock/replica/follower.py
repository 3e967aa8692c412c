"""A partition on a node that follows: where its log leaves the leader's, and how far its readers
may see. PURE."""

from __future__ import annotations

from typing import NamedTuple

from penstock.ids import NO_LEADER_EPOCH


class DivergingEpoch(NamedTuple):
    """The leader's largest epoch that is not above the follower's last one, and where it ends in
    the leader's log (KIP-595)."""

    epoch: int
    end_offset: int


def truncation_point(
    diverging: DivergingEpoch, own_epoch: int, own_epoch_end: int, end_offset: int
) -> int:
    """Where to cut. `own_epoch` is the largest epoch of the own log that is not above the leader's,
    and `own_epoch_end` its end there.

    Never the watermark (KIP-101): what is below it here may lie above what this replica must keep,
    and what is above it may be committed. Where the follower does not have the leader's epoch it
    cuts to what it has before it, and asks again with that.
    """
    if own_epoch == NO_LEADER_EPOCH:
        return min(diverging.end_offset, end_offset)
    return min(diverging.end_offset, own_epoch_end, end_offset)


def follower_watermark(current: int, told: int, end_offset: int) -> int:
    """A leader that was just elected may tell less than the one before: what readers were shown
    stays shown."""
    return max(current, min(told, end_offset))
