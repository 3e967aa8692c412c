"""Tells which of Spark's Python processes this is, and keeps its garbage collection short.

Spark runs each kind of work in processes with a main module of its own. `pyspark.daemon` calls
gc.collect() whenever a worker has finished a task. It looks at every object that the imported
modules have created, which takes 25 ms: longer than a small task. Objects that are frozen are
skipped.
"""

from __future__ import annotations

import gc
import sys

_WORKER = "pyspark.daemon"


def freeze_imports() -> None:
    """Freeze the objects that exist when a worker runs its first task. They stay until the process
    ends, as imported modules do anyway. No effect in other processes, such as a driver."""
    if not gc.get_freeze_count() and runs_module(_WORKER):
        gc.collect()
        gc.freeze()


def runs_module(name: str) -> bool:
    """Return True if this process runs a module of Spark, as its main module or imported by it."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return name in sys.modules or (main is not None and main.name == name)
