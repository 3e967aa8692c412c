"""A supervised cluster with stub nodes: `python -m tests.cli.stub_cluster DIR BROKERS`.

A node whose directory has a file `refuse` fails to start; one with `linger` ignores SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.cli.cluster import control, layout
from penstock.cli.cluster.layout import Layout
from penstock.cli.cluster.supervisor import Supervisor


def serve(home: Path, ready: Callable[[], None]) -> int:
    if (home / "refuse").exists():
        sys.stderr.write("the node refuses to start\n")
        return 7
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    ready()
    signal.sigwait([signal.SIGUSR1] if (home / "linger").exists() else [signal.SIGTERM])
    (home / "stopped").touch()
    return 0


def add_broker(old: Layout) -> Layout:
    new = layout.with_broker(old)
    (DIRECTORY / str(new.nodes[-1].id)).mkdir(exist_ok=True)
    return new


def main() -> str | None:
    control.lock(DIRECTORY)
    cluster = layout.load(DIRECTORY) or layout.plan("stub", int(sys.argv[2]), None, 0, (), {})
    layout.save(DIRECTORY, cluster)
    for node in cluster.nodes:
        (DIRECTORY / str(node.id)).mkdir(exist_ok=True)

    def announce() -> None:
        sys.stdout.write(f"ready {cluster.bootstrap}\n")
        sys.stdout.flush()

    return Supervisor(
        DIRECTORY, cluster, serve, probe=lambda: 0, announce=announce, add_broker=add_broker
    ).run()


DIRECTORY = Path(sys.argv[1]) if __name__ == "__main__" else Path()
if __name__ == "__main__":
    sys.exit(main())
