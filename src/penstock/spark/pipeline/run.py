"""Runs or validates a pipeline with a session that has its modules and packages.

The caller displays progress.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from penstock.spark.blocking_client import BlockingClient
from penstock.spark.errors import spark_reason
from penstock.spark.options import OptionError, broker_options, sink_options
from penstock.spark.pipeline.application import Application, check_file, load_application
from penstock.spark.pipeline.checkpoint import default_checkpoint
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.queries import RunningQueries
from penstock.spark.pipeline.writers import writer_field
from penstock.spark.session import quiet_session
from penstock.spark.shipping import modules_archive, shipping_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CONF = {
    # `RunningQueries.poll` reads all progress reports twice a second.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # An idle query asks for the latest offsets this often. Spark's default of 10 ms keeps a core
    # busy with a few idle queries.
    "spark.sql.streaming.pollingDelay": "50ms",
}


@dataclass(frozen=True, slots=True)
class PipelineRun:
    path: Path
    bootstrap_servers: str
    master: str = "local[*]"
    # The parent directory of the queries' checkpoints: a path, or a URI that Hadoop supports.
    checkpoint: str = ""
    once: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path | None:
        """Spark's log, in the checkpoint directory if that is on this machine."""
        checkpoint = self.checkpoint or default_checkpoint(self.path)
        return None if "://" in checkpoint else Path(checkpoint) / "spark.log"

    def start(self, spark: SparkSession, application: Application) -> RunningQueries:
        writers = application.queries(spark, self.bootstrap_servers, self.settings)
        queries = RunningQueries(
            writers,
            self.checkpoint or default_checkpoint(self.path),
            self.path.parent,
            once=self.once,
            fail_on_late_rows=application.fail_on_late_rows,
        )
        queries.start()
        return queries


def check_brokers(bootstrap_servers: str) -> None:
    """Connect once, to fail within seconds and before Spark starts. KafkaError if no broker can be
    reached."""
    with BlockingClient(sink_options(broker_options(bootstrap_servers)).connection):
        return


@contextlib.contextmanager
def pipeline_session(
    path: Path, master: str, log: Path | None = None, *, ui: bool = True
) -> Iterator[tuple[SparkSession, Application]]:
    """Yield a session whose workers have the modules and packages of the pipeline, and the loaded
    pipeline. Spark's messages go to the log. `ui` leaves Spark's own default for its UI."""
    check_file(path)
    directory = path.resolve().parent
    with tempfile.TemporaryDirectory(prefix="penstock-") as shipped:
        conf = {
            **_CONF,
            "spark.app.name": path.stem,
            "spark.master": master,
            **shipping_conf(master, Path(shipped), modules=directory),
            **({} if ui else {"spark.ui.enabled": "false"}),
        }
        spark = quiet_session(log or Path(shipped) / "spark.log", **conf)
        try:
            spark.sparkContext.addPyFile(str(modules_archive(directory, Path(shipped))))
            yield spark, load_application(path)
        finally:
            spark.stop()


def validate(
    spark: SparkSession,
    application: Application,
    bootstrap_servers: str,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Plan the queries without starting them. Return the schema that each writes."""
    writers = application.queries(spark, bootstrap_servers, settings)
    for name, writer in writers.items():
        try:
            _check_streaming_plan(spark, writer)
        except (OptionError, PySparkException) as error:
            raise PipelineError(
                f"query {name} cannot be started: {spark_reason(str(error))}"
            ) from error
    return {name: writer._df.schema.simpleString() for name, writer in writers.items()}


def _check_streaming_plan(spark: SparkSession, writer: DataStreamWriter) -> None:
    """Check what Spark checks when a query starts."""
    plan = writer._df._jdf.queryExecution().analyzed()
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        plan, writer_field(writer, "outputMode")
    )
