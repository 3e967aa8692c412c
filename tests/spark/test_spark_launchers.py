"""The Java and the Python of Spark. With Spark: test_spark_plain_script."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.launchers import environment_python, java_home


def fake_java(home: Path, version: str | None) -> Path:
    """Write a fake Java whose version is in a release file (as since Java 9) or in its output."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_takes_precedence_over_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from_home, on_path = fake_java(tmp_path / "home", "17.0.2"), fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(from_home))
    assert java_home() == from_home


@pytest.mark.parametrize(
    ("version", "message"),
    [("11.0.1", "has version 11, but Spark needs"), (None, "has version 8, but Spark needs")],
)
def test_old_java_is_replaced_by_the_bundled_one_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: str | None,
    message: str,
) -> None:
    monkeypatch.setenv("PATH", "/bin:/usr/bin" if version is None else str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with caplog.at_level(logging.WARNING):
        home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert message in caplog.text


def test_old_java_home_is_replaced_by_a_newer_java_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11")))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == on_path
    assert "Spark uses the Java of PATH instead" in caplog.text


def test_wrapper_on_the_path_is_run_to_find_its_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    java = tmp_path / "shims" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("PATH", f"{java.parent}:/bin:/usr/bin")
    for version, home in (("17.0.2", Path("/elsewhere/java")), ("11.0.2", tmp_path / "cache")):
        java.write_text(
            "#!/bin/sh\necho '    java.home = /elsewhere/java' >&2\necho 'openjdk version "
            f'"{version}"\' >&2\n'
        )
        java.chmod(0o755)
        assert java_home().is_relative_to(home)
    assert f"the Java of PATH ({java}) has version 11" in caplog.text


def test_java_home_without_java_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home().is_relative_to(tmp_path / "cache")
    assert "cannot be run" in caplog.text


def test_bundled_java_accepts_the_arguments_of_spark() -> None:
    home = java_home()
    assert java_home() == home
    java = [
        str(home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Dname=two words",
        "-version",
    ]
    result = subprocess.run(
        java, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath}
    )
    assert result.returncode == 0, result.stderr
    assert "version" in result.stderr


def test_python_launcher_removes_sparks_zips_from_the_path() -> None:
    lib = "/spark/python/lib"
    path = f"/a b:{lib}/pyspark.zip:{lib}/py4j-0.10.9.9-src.zip:/spark-core.jar"
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.prefix, sys.argv[1:])"
    result = subprocess.run(
        [environment_python(), "-c", code, "x y", "*"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"/a b:/spark-core.jar {sys.prefix} ['x y', '*']\n"
