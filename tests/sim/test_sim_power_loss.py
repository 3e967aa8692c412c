"""What survives a loss of power, per flush setting (rule 24). docs/POWER-LOSS.md has the table."""

from __future__ import annotations

import pytest

from penstock.sim.power_loss import lose_power

EVERY_APPEND = "log.flush.interval.messages=1"
DEFAULT = ""


@pytest.mark.parametrize(("flush", "machines"), [(EVERY_APPEND, 3), (DEFAULT, 1), (DEFAULT, 2)])
def test_nothing_acknowledged_is_lost(flush: str, machines: int) -> None:
    survival = lose_power(1, flush, machines)
    assert survival.acknowledged > 300
    assert survival.lost == 0


def test_all_machines_lose_what_they_had_not_synced() -> None:
    """Otherwise the simulated disks keep too much, and the tests above show nothing."""
    assert lose_power(1, DEFAULT, 3).lost > 300


def test_a_flush_interval_bounds_what_is_lost() -> None:
    survival = lose_power(1, "log.flush.interval.ms=100", 3)
    assert survival.oldest_lost_s < 1.0
