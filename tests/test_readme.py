"""The README's examples run in order against one broker, and its references exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(
    r"^### ([^\n]+)\n(?:[^#]*?)```python\n(.*?)```", (ROOT / "README.md").read_text(), re.M | re.S
)


def test_the_readme_has_these_examples() -> None:
    names = [name for name, _ in EXAMPLES]
    assert names == ["confluent-kafka", "Transactions", "kafka-python", "Spark", "In a test"]


# One test, because later examples read what earlier ones produced. Spark needs the worker that has
# the Spark session.
@pytest.mark.xdist_group("spark")
def test_the_examples_run_in_order() -> None:
    with penstock.Cluster() as cluster:
        for name, example in EXAMPLES:
            code = example.replace("localhost:9092", cluster.bootstrap_servers)
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
