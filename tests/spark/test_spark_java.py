"""Which Java Spark gets, and a plain script that needs nothing but an import."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.java import java_home


def fake_java(home: Path, version: str | None) -> Path:
    """With a version in a file, as Java has it since 9, or said when asked."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_comes_first_then_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given, on_path = fake_java(tmp_path / "given", "17.0.2"), fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(given))
    assert java_home() == given


@pytest.mark.parametrize(("version", "says"), [("11.0.1", "has version 11, and Spark needs"), (None, "has version 8, and Spark needs")])
def test_an_old_java_is_named_and_the_bundled_one_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str | None, says: str
) -> None:
    monkeypatch.setenv("PATH", "/bin:/usr/bin" if version is None else str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with caplog.at_level(logging.WARNING):
        home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert says in caplog.text


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home().is_relative_to(tmp_path / "cache")
    assert "cannot be run" in caplog.text


def test_the_bundled_java_runs_with_what_spark_asks_for() -> None:
    home = java_home()
    assert java_home() == home
    java = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"]
    found = subprocess.run(java, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath})
    assert found.returncode == 0, found.stderr
    assert "version" in found.stderr


SCRIPT = """
import penstock.spark
from pyspark.sql import SparkSession
import penstock
with penstock.Cluster() as cluster:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    spark.range(10).selectExpr("cast(id as string) as value").write.format("penstock").options(**options, topic="t").mode("append").save()
    print("rows:", spark.read.format("penstock").options(**options, subscribe="t").load().filter("offset >= 4").count())
"""


def test_a_plain_script_in_an_environment_that_is_not_activated_and_has_no_java(tmp_path: Path) -> None:
    """Its own session, which does not push filters down; Spark's scripts need these few programs, and no other is there."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "env", "sh", "uname", "ps", "cat"):
        (programs / name).symlink_to(next(each / name for each in (Path("/usr/bin"), Path("/bin")) if (each / name).exists()))
    (tmp_path / "job.py").write_text(SCRIPT)
    environment = {"PATH": str(programs), "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert "rows: 6" in done.stdout, done.stderr[-4000:]
