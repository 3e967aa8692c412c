"""Types of the tests of Kafka's command line tools."""

from __future__ import annotations

from collections.abc import Callable

# Exit code, stdout and stderr.
Result = tuple[int, str, str]
Tool = Callable[..., Result]
