"""Which Java Spark gets. With Spark itself: test_spark_plain_script."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from penstock.spark.launchers import java_home


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


def test_java_home_comes_first_then_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given, on_path = fake_java(tmp_path / "given", "17.0.2"), fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(given))
    assert java_home() == given


@pytest.mark.parametrize(
    ("version", "says"),
    [("11.0.1", "has version 11, but Spark needs"), (None, "has version 8, but Spark needs")],
)
def test_an_old_java_is_named_and_the_bundled_one_serves(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: str | None,
    says: str,
) -> None:
    monkeypatch.setenv("PATH", "/bin:/usr/bin" if version is None else str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with caplog.at_level(logging.WARNING):
        home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert says in caplog.text


def test_an_old_java_home_and_a_newer_java_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11")))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == on_path
    assert "Spark uses the Java of PATH instead" in caplog.text


def test_a_program_on_the_path_that_starts_java_is_asked_where_it_is(
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


def test_a_java_home_without_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home().is_relative_to(tmp_path / "cache")
    assert "cannot be run" in caplog.text


def test_the_bundled_java_runs_with_what_spark_asks_for() -> None:
    home = java_home()
    assert java_home() == home
    java = [
        str(home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Dname=two words",
        "-version",
    ]
    found = subprocess.run(
        java, capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.defpath}
    )
    assert found.returncode == 0, found.stderr
    assert "version" in found.stderr
