"""Fetch Apache Kafka's jars with Maven (pom.xml), and run Java programs with them.

Owns the git-ignored directory .kafka-peer. Knows nothing about Penstock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEER = ROOT / ".kafka-peer"
KAFKA_VERSION = "4.3.0"
LIBS = PEER / f"libs-{KAFKA_VERSION}"
MAVEN_TIMEOUT_S = 900
JAVA_TIMEOUT_S = 300


class JavaError(Exception):
    """A Java tool is missing, or a program failed; the message says what to do."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def missing_tools() -> str | None:
    """Return why Java programs cannot run, or None."""
    wanted = ["java", "javac"] if LIBS.is_dir() else ["java", "javac", "mvn"]
    missing = [tool for tool in wanted if shutil.which(tool) is None]
    if not missing:
        return None
    return (
        f"{' and '.join(missing)} not found on the PATH: install a JDK of version 17 or newer "
        "and Maven"
    )


def fetch_jars() -> Path:
    """Return the directory of the jars; fetches them if it does not exist."""
    reason = missing_tools()
    if reason is not None:
        raise JavaError(reason)
    return copy_dependencies(
        f"Apache Kafka {KAFKA_VERSION}", "pom.xml", LIBS, f"-Dkafka.version={KAFKA_VERSION}"
    )


def copy_dependencies(label: str, names: str, libs: Path, *options: str) -> Path:
    """Fetch the jars of a pom file into a directory, which is created atomically."""
    if libs.is_dir():
        return libs
    PEER.mkdir(exist_ok=True)
    partial = PEER / f"{libs.name}.partial-{os.getpid()}"
    say(f"fetching {label} with Maven")
    command = ["mvn", "-q", "-B", "-f", str(HERE / names), *options, "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
    )
    if done.returncode != 0 or not partial.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        raise JavaError(
            f"Maven could not fetch {label} (is Maven Central "
            f"reachable?):\n{done.stdout}{done.stderr}"
        )
    try:
        partial.rename(libs)
    except OSError:
        if not libs.is_dir():
            raise
        shutil.rmtree(partial)  # Another run was faster.
    return libs


def compile_java(source: str, libs: Path | None = None) -> Path:
    """Compile tests/java/<source>.java against Kafka's or other jars; return the directory of its
    classes."""
    libs = libs or fetch_jars()
    classes = PEER / "classes" / source
    classes.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            "javac",
            "-nowarn",
            "-encoding",
            "UTF-8",
            "-d",
            str(classes),
            "-cp",
            f"{libs}/*",
            str(HERE / f"{source}.java"),
        ],
        capture_output=True,
        text=True,
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise JavaError(
            f"{source}.java does not compile against Apache Kafka "
            f"{KAFKA_VERSION}:\n{done.stdout}{done.stderr}"
        )
    return classes


def run_java(
    main: str, *arguments: str, classes: Path | None = None, expect_success: bool = True
) -> str:
    """Run a class of Kafka's (or ours, with `classes`) to its end, and return its output."""
    path = f"{fetch_jars()}/*" if classes is None else f"{classes}{os.pathsep}{fetch_jars()}/*"
    command = ["java", "-Xmx512m", "-Dfile.encoding=UTF-8", "-cp", path, main, *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    if expect_success and done.returncode != 0:
        raise JavaError(
            f"{main} {' '.join(arguments)} ended with "
            f"{done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done.stdout if expect_success else done.stdout + done.stderr
