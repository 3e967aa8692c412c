"""What tests have to say beyond pass or fail (how many seeds ran, what was left out) is printed at
the end, also from parallel workers."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long group first, beside everything else: at the end one worker would wait for it."""
    items.sort(key=lambda item: not _is_long(item))


def _is_long(item: pytest.Item) -> bool:
    group = item.get_closest_marker("xdist_group")
    return group is not None and group.args == ("spark",)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
    ]
    notes = [
        value for report in reports for name, value in report.user_properties if name == "note"
    ]
    if notes:
        terminalreporter.section("notes")
        for note in notes:
            terminalreporter.write_line(str(note))
