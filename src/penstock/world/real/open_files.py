"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource


def raise_open_files() -> None:
    """To what an administrator allows: the usual 1,024 is a default for programs of long ago, and a
    node needs one for each client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS says that there is no limit, and refuses that.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
