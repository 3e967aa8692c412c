"""Running a pipeline: the session is prepared, its file is loaded, its queries are started and
followed. What is shown is the caller's."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.background import Background
from penstock.spark.options import sink_options
from penstock.spark.pipeline.checkpoint import default_checkpoint
from penstock.spark.pipeline.load import Application, check_file, load
from penstock.spark.pipeline.queries import Queries
from penstock.spark.session import quiet_session
from penstock.spark.shipping import modules_archive, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Progress is looked at twice a second, all that is kept of it.
_OURS = {"spark.sql.streaming.numRecentProgressUpdates": "20"}


@dataclass(frozen=True, slots=True)
class Run:
    path: Path
    bootstrap_servers: str
    master: str = "local[*]"
    # Where each query has a directory for its checkpoint: a path, or what Hadoop takes for one.
    checkpoint: str = ""
    once: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path | None:
        """Beside the checkpoints, where these are on this machine."""
        checkpoint = self.checkpoint or default_checkpoint(self.path)
        return None if "://" in checkpoint else Path(checkpoint) / "spark.log"

    def start(self, spark: SparkSession, application: Application) -> Queries:
        writers = application.queries(spark, self.bootstrap_servers, self.settings)
        checkpoint = self.checkpoint or default_checkpoint(self.path)
        queries = Queries(
            writers,
            checkpoint,
            self.path.parent,
            once=self.once,
            fail_on_late_rows=application.fail_on_late_rows,
        )
        queries.start()
        return queries


def check_brokers(bootstrap_servers: str) -> None:
    """Within seconds, and before Spark is started."""
    with Background(sink_options({"kafka.bootstrap.servers": bootstrap_servers}).connection):
        return


@contextlib.contextmanager
def prepared(
    path: Path, master: str, log: Path | None = None
) -> Iterator[tuple[SparkSession, Application]]:
    """A session whose workers have what the pipeline needs, and the pipeline. Spark's own words go
    to the log."""
    check_file(path)
    directory = path.resolve().parent
    with tempfile.TemporaryDirectory(prefix="penstock-") as shipped:
        settings = {
            **_OURS,
            "spark.app.name": path.stem,
            "spark.master": master,
            **ship(master, Path(shipped), beside=directory),
        }
        spark = quiet_session(log or Path(shipped) / "spark.log", **settings)
        try:
            spark.sparkContext.addPyFile(str(modules_archive(directory, Path(shipped))))
            yield spark, load(path)
        finally:
            spark.stop()
