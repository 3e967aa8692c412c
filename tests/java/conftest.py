"""Skip the tests of this directory, with a message, if Java or Maven is missing."""

from __future__ import annotations

import pytest

from tests.java.kafka_jars import missing_tools

_REASON = missing_tools()
collect_ignore_glob = ["test_java_*.py"] if _REASON else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REASON:
        terminalreporter.write_line(f"tests/java was skipped: {_REASON}")
