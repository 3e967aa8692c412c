"""The README's examples run in order against one broker, and its references exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(
    r"^### ([^\n]+)\n(?:[^#]*?)```python\n(.*?)```", (ROOT / "README.md").read_text(), re.M | re.S
)


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


def test_the_readme_has_an_example_per_client() -> None:
    names = [name for name, _ in EXAMPLES]
    assert names == ["confluent-kafka", "kafka-python", "Spark", "In a test"]


# The Spark example needs the Spark session of its worker, and reads what the others produced.
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(name: str, example: str, bootstrap_servers: str) -> None:
    code = example.replace("localhost:9092", bootstrap_servers)
    exec(compile(code, f"README.md, {name}", "exec"), {})


def test_targets_and_files_that_documents_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = "".join(
        (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
    )
    for target in set(re.findall(r"make ([a-z][a-z-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / link).exists(), link
