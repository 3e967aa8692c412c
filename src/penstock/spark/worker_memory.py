"""Keeps the garbage collection short that Spark's Python workers run after every task.

`pyspark.daemon` calls gc.collect() whenever a worker has finished a task. It looks at every object
that the imported modules have created, which takes 25 ms: longer than a small task. Objects that
are frozen are skipped.
"""

from __future__ import annotations

import gc
import sys

_WORKER = "pyspark.daemon"


def freeze_imports() -> None:
    """Freeze the objects that exist when a worker runs its first task. They stay until the process
    ends, as imported modules do anyway. No effect in other processes, such as a driver."""
    if not gc.get_freeze_count() and _is_worker():
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return main is not None and main.name == _WORKER
