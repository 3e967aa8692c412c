"""The faults of a soak: each begins at a node, lasts, and ends.

The names and order are part of a schedule: a seed gives the same faults at the same nodes. What the
cluster makes of them depends on real time.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fire.cluster import INSIDE, NODE_IDS, OUTSIDE, FireCluster, FireNode
from tests.fire.damage import Damage
from tests.fire.machine_fires import empty, fill
from tests.fire.operating import restart

_Work = Callable[[FireCluster, FireNode, random.Random], None]


@dataclass(frozen=True, slots=True)
class Fault:
    light: _Work
    put_out: _Work


def _others(node: FireNode) -> list[str]:
    return [f"n{other}" for other in NODE_IDS if other != node.id]


def _heal(cluster: FireCluster, _node: FireNode, _rng: random.Random) -> None:
    cluster.network.heal()


def _isolate(cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    cluster.network.cut([f"n{node.id}", INSIDE], [*_others(node), OUTSIDE])


def _cut_out(cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    cluster.network.cut([f"n{node.id}"], _others(node), one_way=True)


def _cut_in(cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    cluster.network.cut(_others(node), [f"n{node.id}"], one_way=True)


def _cut_one(cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    cluster.network.cut([f"n{node.id}"], [rng.choice(_others(node))])


def _lose(cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    cluster.network.lose(f"n{node.id}", rng.choice((5, 20, 40)))


def _limit(cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    cluster.network.limit(f"n{node.id}", rng.choice(("200kbit", "1mbit")))


def _delay(cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    cluster.network.delay(f"n{node.id}", rng.choice((50, 500, 1500)))


def _freeze(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.signal(signal.SIGSTOP)


def _thaw(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.signal(signal.SIGCONT)


def _kill(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.kill()


def _start(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.start()


def _kill_all(cluster: FireCluster, _node: FireNode, _rng: random.Random) -> None:
    for node in cluster.nodes.values():
        node.signal(signal.SIGKILL)


def _start_all(cluster: FireCluster, _node: FireNode, _rng: random.Random) -> None:
    for node in cluster.nodes.values():
        node.kill()
        node.start()


def _fill(_cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    fill(rng.choice((node.data, node.meta)))


def _empty(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    for directory in (node.data, node.meta):
        if (directory / "filler").exists():
            empty(directory)
    restart(node)


def _forbid(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.data.chmod(0)


def _permit(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.data.chmod(0o755)
    restart(node)


def _jump(_cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    node.set_clock(rng.choice(("+10m", "+1h", "+6h", "-30m")))


def _set_back(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.set_clock("+0")


def _stop(_cluster: FireCluster, node: FireNode, _rng: random.Random) -> None:
    node.stop()


def _damage(_cluster: FireCluster, node: FireNode, rng: random.Random) -> None:
    """Kill or stop a node, damage one of its files, and start it."""
    files = sorted(file for file in _files(node) if file.stat().st_size)
    # First the kind, so that the many segments do not win.
    kind = rng.choice(sorted({_kind(file) for file in files}))
    file = rng.choice([file for file in files if _kind(file) == kind])
    is_segment = kind == ".log"
    if is_segment or rng.random() < 0.5:
        node.kill()
    else:
        node.stop()
    if file.exists():
        rng.choice(list(Damage)).apply(file, rng, tail=is_segment)
    node.start()


def _nothing(_cluster: FireCluster, _node: FireNode, _rng: random.Random) -> None:
    """The soak lets the operator follow the node's log."""


def _files(node: FireNode) -> list[Path]:
    """Return the files that may be damaged.

    No CRC covers log start offsets and transaction indexes: a flipped digit hides records, and a
    lost entry shows aborted ones. Segments of which nothing
    is written any more are left out, because only their readers find a changed record.
    """
    return [
        file
        for directory in (node.data, node.meta)
        for file in directory.rglob("*")
        if file.is_file()
        and file.name not in (".lock", "log-start-offset-checkpoint")
        and file.suffix != ".txnindex"
        and (file.suffix != ".log" or file.parent.name.startswith(("soak-plain", "__cluster")))
    ]


def _kind(file: Path) -> str:
    metadata = "metadata " if "__cluster_metadata" in str(file) else ""
    return metadata + (file.suffix if file.stem.isdigit() else file.name)


DAMAGE = "damage a file"
FAULTS = {
    "isolate": Fault(_isolate, _heal),
    "cut its packets": Fault(_cut_out, _heal),
    "cut packets to it": Fault(_cut_in, _heal),
    "cut it from one node": Fault(_cut_one, _heal),
    "lose packets": Fault(_lose, _heal),
    "limit bandwidth": Fault(_limit, _heal),
    "delay packets": Fault(_delay, _heal),
    "freeze": Fault(_freeze, _thaw),
    "kill -9": Fault(_kill, _start),
    "stop": Fault(_stop, _start),
    "kill -9 of all": Fault(_kill_all, _start_all),
    "full disk": Fault(_fill, _empty),
    "no permission": Fault(_forbid, _permit),
    "clock jump": Fault(_jump, _set_back),
    DAMAGE: Fault(_damage, _nothing),
}
