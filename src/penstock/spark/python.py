"""The Python that Spark starts on this machine: this environment's, by a program of our own that
finds PySpark where it lies compiled.

Spark puts PySpark as a zip first on the path of each Python process, and Python compiles what it
imports from a zip anew at every start: a second of work, several times a query. On a busy machine
that is longer than Spark waits.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
import sysconfig
import tempfile
from pathlib import Path

from penstock.spark.java import cache_directory

PYTHON = "penstock-python"

_LAUNCHER = """\
#!/bin/sh
# Written by Penstock: Python without Spark's zips on its path, because this environment has PySpark itself.
set -f
IFS=:
kept=
for path in $PYTHONPATH; do
    case $path in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) kept=$kept${{kept:+:}}$path ;;
    esac
done
export PYTHONPATH="$kept"
exec {python} "$@"
"""
_PLAIN = '#!/bin/sh\nexec {python} "$@"\n'


def environment_python() -> Path:
    """The program, written where it is not there yet."""
    launcher = (_LAUNCHER if _has_pyspark() else _PLAIN).format(python=shlex.quote(sys.executable))
    path = (
        cache_directory() / f"python-{hashlib.sha256(launcher.encode()).hexdigest()[:16]}" / PYTHON
    )
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_program(path, launcher)
    return path


def write_program(path: Path, text: str) -> None:
    """Others may do the same now; each renames a whole file into place."""
    descriptor, written = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(written, 0o755)
    os.replace(written, path)


def _has_pyspark() -> bool:
    """In this environment, and not by the PYTHONPATH of a Spark that this runs in."""
    found = importlib.util.find_spec("pyspark")
    return found is not None and str(found.origin).startswith(sysconfig.get_path("purelib"))
