"""Measure what survives a loss of power, in simulation, and replace the table of
docs/POWER-LOSS.md.

    python -m tools.power_loss [SEEDS]

SEEDS are the runs per cell (10 by default).
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from penstock.sim.power_loss import FLUSH_SETTINGS, MACHINES, Survival, lose_power

RESULTS = Path(__file__).parent.parent / "docs" / "POWER-LOSS.md"
_TABLE = "|---|---|---|---|\n"
_LOAD = "200 records a second over three partitions, for 3 to 6 s before the loss of power"


def main(seeds: int) -> None:
    # A simulated cluster logs every fault that it is given.
    logging.disable(logging.ERROR)
    rows = []
    for flush, meaning in FLUSH_SETTINGS.items():
        cells = []
        for machines in range(1, MACHINES + 1):
            runs = [lose_power(seed, flush, machines) for seed in range(1, seeds + 1)]
            cells.append(_cell(runs))
            print(f"{flush or 'default'}, {machines} machines: {cells[-1]}", flush=True)
        name = f"`{flush}`: {meaning}" if flush else meaning
        rows.append(f"| {name} | {' | '.join(cells)} |\n")
    prose, table, _old = RESULTS.read_text().partition(_TABLE)
    note = f"\n{seeds} seeds per cell; {_LOAD}.\n"
    RESULTS.write_text(prose + table + "".join(rows) + note)


def _cell(runs: list[Survival]) -> str:
    acknowledged, lost = sum(run.acknowledged for run in runs), sum(run.lost for run in runs)
    if not lost:
        return f"all of {acknowledged:,}"
    oldest = max(run.oldest_lost_s for run in runs)
    return f"{100 - 100 * lost / acknowledged:.1f} % of {acknowledged:,}; {oldest:.2f} s"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
