"""Runs fires in a user namespace of its own: no root is needed, and everything ends with it.

    python -m tests.fire.lab DIRECTORY

reads names of fires from standard input and writes one line of JSON for each. `Lab` starts it and
talks to it. One cluster serves all fires.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fire import damage_fires, machine_fires, network_fires
from tests.fire.burn import Result
from tests.fire.cluster import FireCluster, FireError, faketime_library

ROOT = Path(__file__).parent.parent.parent
UNSHARE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_COMMANDS = ("ip", "nft", "tc", "unshare", "setpriv", "mount")
# Debian has ip, tc and nft where users do not search.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_INSTALL = "apt-get install iproute2 nftables util-linux faketime"

FIRES: dict[str, Callable[[FireCluster], Result]] = {
    fire.__name__: fire
    for fire in (
        network_fires.leader_isolated,
        network_fires.cut_out_of_leader,
        network_fires.cut_into_leader,
        network_fires.cut_between_two,
        network_fires.packet_loss,
        network_fires.bandwidth,
        network_fires.delay,
        machine_fires.frozen_leader,
        machine_fires.full_disk,
        machine_fires.full_metadata_disk,
        machine_fires.no_permission,
        machine_fires.clock_jumps,
        machine_fires.all_killed,
    )
} | damage_fires.FIRES


class Lab:
    """The process with the cluster; `burn` runs one fire in it."""

    def __init__(self, directory: Path) -> None:
        check_tools()
        self._errors = directory / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*UNSHARE, sys.executable, "-m", "tests.fire.lab", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PATH": PATH},
            )
        self._expect("ready")

    def burn(self, name: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return self._expect("healed_s")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _expect(self, key: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if key not in answer:
            errors = self._errors.read_text(errors="replace")[-4000:]
            raise FireError(answer.get("error") or f"the lab ended: {errors}")
        return answer


def check_tools() -> None:
    """Raise FireError if this machine cannot run fires, with what to do about it."""
    missing = [name for name in _COMMANDS if shutil.which(name, path=PATH) is None]
    if missing:
        raise FireError(f"{', '.join(missing)}: not installed. {_INSTALL}")
    faketime_library()
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise FireError("/dev/net/tun cannot be opened: modprobe tun, or chmod 666 /dev/net/tun")
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FireError(
            f"{' '.join(UNSHARE)} fails: {done.stderr.strip()}. Allow user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1), or run as root"
        )


def main(directory: Path) -> None:
    cluster = FireCluster(directory)
    try:
        cluster.start()
        _answer({"ready": True})
        for line in sys.stdin:
            _answer(_burn(cluster, line.strip()))
    except Exception:  # noqa: BLE001 - the parent raises it
        _answer({"error": traceback.format_exc()})
    finally:
        cluster.close()


def _burn(cluster: FireCluster, name: str) -> dict[str, Any]:
    try:
        return FIRES[name](cluster).as_dict()
    except Exception:  # noqa: BLE001 - the parent raises it
        return {"error": traceback.format_exc()}
    finally:
        _put_out(cluster)


def _put_out(cluster: FireCluster) -> None:
    """End what a failed fire left, so that the next one finds a whole cluster."""
    cluster.network.heal()
    for node in cluster.nodes.values():
        if not node.is_running:
            node.kill()
            node.start()


def _answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the protocol with the parent


if __name__ == "__main__":
    main(Path(sys.argv[1]))
