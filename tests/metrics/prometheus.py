"""A real Prometheus (Debian's package) that scrapes nodes and evaluates the shipped alert rules."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from penstock.metrics import prometheus as shipped

FILES = Path(shipped.__file__).parent
PATIENCE_S = 60.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian's package prometheus; see tools/packages)",
)


def quick_rules(replaced: Mapping[str, str]) -> str:
    """Return the shipped rules, which fire at once, and with other thresholds."""
    text = re.sub(r"for: \w+\n", "for: 0s\n", (FILES / "alerts.yml").read_text())
    for old, new in replaced.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class Prometheus:
    """Scrapes targets every half second, or at another interval."""

    def __init__(
        self, directory: Path, targets: Iterable[str], rules: str, interval: str = "500ms"
    ) -> None:
        self._directory = directory
        directory.mkdir()
        (directory / "alerts.yml").write_text(rules)
        config = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": "500ms",
            },
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {"job_name": "penstock", "static_configs": [{"targets": list(targets)}]}
            ],
        }
        # JSON is YAML.
        (directory / "prometheus.yml").write_text(json.dumps(config))
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{bound.getsockname()[1]}"

    def __enter__(self) -> Self:
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._directory}/prometheus.yml",
                    f"--storage.tsdb.path={self._directory}/data",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )
        self.wait(lambda: self._get("query", query="vector(1)"), "Prometheus does not answer")
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, dict[str, Any]]:
        """Return the firing alerts by name."""
        alerts = self._get("alerts")["alerts"]
        return {
            alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"
        }

    def wait_firing(self, *names: str) -> None:
        self.wait(
            lambda: set(names) <= set(self.firing()),
            lambda: f"{set(names) - set(self.firing())} did not fire",
        )

    def wait_resolved(self, name: str) -> None:
        self.wait(lambda: name not in self.firing(), f"{name} still fires")

    def wait(self, condition: Any, message: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                text = message() if callable(message) else message
                pytest.fail(f"{text} within {PATIENCE_S} s")
            time.sleep(0.1)

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=10) as response:
            return json.load(response)["data"]
