"""What the README says runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_snippets_run(number: int) -> None:
    exec(compile(SNIPPETS[number], f"README.md, snippet {number}", "exec"), {})


def test_every_target_and_file_it_names_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = "".join(
        (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
    )
    for target in set(re.findall(r"make ([a-z][a-z-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / link).exists(), link
