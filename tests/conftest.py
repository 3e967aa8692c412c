"""Print the notes of tests (how many seeds ran, what was skipped) at the end, also from parallel
workers."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The duration of an example depends more on the load of the machine than on the code. Examples are
# the same in each run, so that a change that breaks nothing cannot fail; PENSTOCK_EXAMPLES asks for
# more, and fresh ones.
settings.register_profile(
    "penstock", deadline=None, derandomize="PENSTOCK_EXAMPLES" not in os.environ
)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long Spark group first; otherwise one worker waits for it at the end."""
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
