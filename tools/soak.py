"""Run a soak: a cluster under every fault, with clients of every kind; see docs/SOAK.md.

    python -m tools.soak HOURS [SEED]

A soak that fails keeps its directory, and says where: the schedule of faults, the logs and the
files of the nodes. The same SEED gives the same faults. The result becomes a row of docs/SOAK.md.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fire.lab import PATH, ROOT, UNSHARE, check_tools

RESULTS = ROOT / "docs" / "SOAK.md"


def main(hours: float, seed: int) -> int:
    check_tools()
    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"seed {seed}, directory {directory}", flush=True)
    seconds = hours * 3600
    words = [sys.executable, "-m", "tests.fire.soak", str(directory), str(seconds), str(seed)]
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run([*UNSHARE, *words], cwd=ROOT, env=environment, check=False)
    summary = directory / "summary.json"
    if done.returncode != 0 or not summary.exists():
        failure = directory / "failure.txt"
        reason = failure.read_text() if failure.exists() else f"it ended with {done.returncode}"
        print(f"{reason}\nThe soak failed. Repeat its faults with SEED={seed}; see {directory}")
        _add_row(hours, seed, f"**failed**: {reason.splitlines()[0][:200]}")
        return 1
    results = json.loads(summary.read_text())
    print(json.dumps(results, indent=1))
    _add_row(hours, seed, _text(results))
    shutil.rmtree(directory)
    return 0


def _text(results: dict[str, object]) -> str:
    faults = results.pop("faults")
    assert isinstance(faults, dict)
    figures = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in results.items()
        if name not in ("seed", "seconds")
    ]
    each = ", ".join(f"{name} {count}" for name, count in faults.items())
    return f"clean; {'; '.join(figures)}; {sum(faults.values())} faults ({each})"


def _add_row(hours: float, seed: int, text: str) -> None:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    row = f"| {today} | {commit} | {hours:g} | {seed} | {text.replace('|', '/')} |\n"
    with RESULTS.open("a") as file:
        file.write(row)


if __name__ == "__main__":
    given = sys.argv[2] if len(sys.argv) > 2 else ""
    sys.exit(main(float(sys.argv[1]), int(given) if given else secrets.randbelow(2**31)))
