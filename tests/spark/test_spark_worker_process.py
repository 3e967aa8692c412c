"""Garbage collection in Spark's Python workers."""

from __future__ import annotations

import gc
import subprocess
import sys

from penstock.spark.worker_process import freeze_imports

# As in a worker: the module pyspark.daemon is the main module.
IN_A_WORKER = """
import gc, sys, types
from importlib.machinery import ModuleSpec
import pyspark
import penstock.spark.datasource
from penstock.spark.worker_process import freeze_imports
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
before = len(gc.get_objects())
freeze_imports()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_imports()
print(frozen > before * 0.9, gc.get_freeze_count() == frozen, len(gc.get_objects()) < 5000)
"""


def test_worker_freezes_its_imports_once() -> None:
    result = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER], capture_output=True, encoding="utf-8", check=True
    )
    assert result.stdout.split() == ["True", "True", "True"], result


def test_other_processes_are_not_changed() -> None:
    frozen = gc.get_freeze_count()
    freeze_imports()
    assert gc.get_freeze_count() == frozen
