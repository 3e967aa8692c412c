"""Write the file maps of ARCHITECTURE.md from the modules' docstrings.

`python -m tools.filemap` replaces the section "File maps"; with `--check` it fails if the section
is not up to date. A module's row is the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "penstock"
DOCUMENT = ROOT / "ARCHITECTURE.md"
HEADING = "## File maps\n"
# One file per API or command: the names say it all.
UNLISTED = ("handlers", "protocol/messages", "cli/kafka")


def summary(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", paragraph)[0].rstrip(".:;").replace("|", "\\|")


def table(package: Path) -> str:
    name = package.relative_to(PACKAGE).as_posix()
    title = "penstock" if name == "." else name
    lines = [f"**{title}/** {summary(package / '__init__.py')}.", ""]
    if name in UNLISTED:
        return "\n".join([*lines, "One file per API or command.", ""])
    modules = [module for module in sorted(package.glob("*.py")) if module.stem != "__init__"]
    if modules:
        lines += ["| module | |", "|---|---|"]
        lines += [f"| `{module.name}` | {summary(module)} |" for module in modules]
        lines.append("")
    return "\n".join(lines)


def maps() -> str:
    packages = sorted({module.parent for module in PACKAGE.rglob("__init__.py")})
    return HEADING + "\n" + "\n".join(table(package) for package in packages)


def main() -> int:
    text = DOCUMENT.read_text()
    updated = text[: text.index(HEADING)] + maps()
    if sys.argv[1:] == ["--check"]:
        if updated != text:
            print("ARCHITECTURE.md: the file maps are out of date; run python -m tools.filemap")
        return int(updated != text)
    DOCUMENT.write_text(updated)
    return 0


if __name__ == "__main__":
    sys.exit(main())
