"""A Spark standalone cluster on loopback: a master and workers, started from PySpark's jars."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from penstock.spark.launchers import java_home
from tests.e2e.penstock_process import free_port

START_TIMEOUT_S = 300.0
SPARK_HOME = Path(str(pyspark.__file__)).parent


class SparkStandalone:
    """`with SparkStandalone(directory, workers=2) as cluster: cluster.master`. Each worker has one
    core, and no access to .venv."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.master = f"spark://127.0.0.1:{free_port()}"
        self.directories = [directory / f"worker-{number}" for number in range(workers)]
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SparkStandalone:
        self._directory.mkdir(parents=True, exist_ok=True)
        port = self.master.rpartition(":")[2]
        self._start("master", "org.apache.spark.deploy.master.Master", "--port", port)
        self._wait_for_log("Starting Spark master")
        for directory in self.directories:
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory))
            self._start(
                directory.name, "org.apache.spark.deploy.worker.Worker", *options, self.master
            )
        self._wait_for_log("Registering worker", len(self.directories))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._processes:
            self._kill(name)

    @property
    def worker_ids(self) -> list[int]:
        """The process ids of the workers."""
        return [self._processes[directory.name].pid for directory in self.directories]

    def kill_worker(self, number: int) -> None:
        """Kill the worker and its executors with SIGKILL."""
        self._kill(self.directories[number].name)

    def _start(self, name: str, main: str, *arguments: str) -> None:
        environment = {
            "PATH": "/usr/bin:/bin",
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            main,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *arguments,
        ]
        with self._output(name).open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env=environment,
                start_new_session=True,
            )

    def _wait_for_log(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (log := self._output("master").read_text(errors="replace")).count(text) < times:
            if self._processes["master"].poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError(
                    f"the Spark master did not log {text!r} {times} times:\n{log[-4000:]}"
                )
            time.sleep(0.1)

    def _output(self, name: str) -> Path:
        return self._directory / f"{name}.output"

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
