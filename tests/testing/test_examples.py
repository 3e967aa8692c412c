"""examples/ run from an installed wheel in a fresh virtual environment, as for other people."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# Generous: a busy machine must not fail the test. The measured times are printed as notes.
STEP_WITHIN_S = 600
PACKAGES = ("pytest", "aiokafka", "confluent-kafka")

Record = Callable[[str, object], None]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    # Without the paths of this session, so that only what is installed is imported.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=STEP_WITHIN_S,
        check=False,
        cwd=cwd,
        env=env,
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with our wheel and what the examples import."""
    directory = tmp_path_factory.mktemp("examples")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory)
    (wheel,) = directory.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", directory / "venv")
    python = directory / "venv/bin/python"
    packages = ("--constraint", ROOT / "constraints.txt", wheel, *PACKAGES)
    if shutil.which("uv"):
        run("uv", "pip", "install", "--compile-bytecode", "--python", python, *packages)
    else:
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *packages)
    # The examples are copied: pytest must not find this project's settings and sources.
    shutil.copytree(ROOT / "examples", directory / "examples")
    return directory


def setup_s(output: str) -> float:
    """Return how long the longest setup took, that of the test that starts the cluster."""
    return max(float(seconds) for seconds in re.findall(r"^([\d.]+)s setup", output, re.MULTILINE))


def count_passed(output: str) -> int:
    (passed,) = re.findall(r"(\d+) passed", output)
    assert not re.search(r"\d+ (failed|error|skipped|xfailed)", output), output
    return int(passed)


@pytest.mark.more
def test_the_examples_pass(environment: Path, record_property: Record) -> None:
    began = time.monotonic()
    output = run(
        environment / "venv/bin/python",
        *(
            "-m",
            "pytest",
            "--durations=0",
            "-vv",
            "orders",
            "--ignore=orders/test_hundred_topics.py",
        ),
        cwd=environment / "examples",
    )
    took = time.monotonic() - began
    assert count_passed(output) >= 15
    record_property("note", f"examples from the wheel: {took:.1f} s with simulations")


@pytest.mark.more
def test_a_hundred_tests_have_new_topics(environment: Path, record_property: Record) -> None:
    began = time.monotonic()
    output = run(
        environment / "venv/bin/python",
        *("-m", "pytest", "--durations=0", "-vv", "orders/test_hundred_topics.py"),
        cwd=environment / "examples",
    )
    took = time.monotonic() - began
    assert count_passed(output) == 100
    record_property(
        "note",
        f"100 tests with new topics from the wheel: {took:.1f} s (goal: 10 s), of which the "
        f"cluster's start takes {setup_s(output):.2f} s (goal: 0.5 s)",
    )
