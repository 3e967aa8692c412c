"""The commands init, validate, run and status."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import (
    INTERRUPTED,
    LOCAL,
    BootstrapServer,
    CommandFailed,
    exit_on_closed_pipe,
    fail,
    parse_pairs,
)
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.spark.pipeline.checkpoint import QueryCheckpoint
    from penstock.spark.pipeline.queries import RunningQueries

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="The .py file of a pipeline, or a directory with a pipeline.py or spark-pipeline.yml.",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", help="The Spark master: local[*], spark://…, yarn or k8s://….", metavar="URL"
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        help="The checkpoint directory. Default: .checkpoint beside PATH.",
        metavar="DIR",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-c", "--config", metavar="KEY=VALUE", help="A setting for the pipeline; may be repeated."
    ),
]

ALL_CORES = "local[*]"
_REDRAW_S = 0.5
# A batch that takes longer is interrupted; the next run repeats it.
_STOP_TIMEOUT_S = 60.0


def run_command(
    path: PathArgument,
    bootstrap_server: BootstrapServer = LOCAL,
    master: Master = ALL_CORES,
    checkpoint: Checkpoint = "",
    once: Annotated[
        bool, typer.Option("--once", help="Process the records that exist, and exit.")
    ] = False,
    config: Settings = None,
) -> None:
    """Run a pipeline and show its progress. Ctrl-C stops it after the current batches, a second
    Ctrl-C immediately."""
    with report_errors("pipeline run"):
        from penstock.spark.pipeline.application import check_file, find_file
        from penstock.spark.pipeline.declarative import find_spec, run_project
        from penstock.spark.pipeline.run import PipelineRun, check_brokers, pipeline_session

        settings = parse_pairs(config or (), "setting")
        check_brokers(bootstrap_server)
        if spec := find_spec(path):
            if checkpoint:
                raise CommandFailed(
                    "--checkpoint applies to a .py file only: remove it, and set storage in "
                    f"{spec} instead"
                )
            run_project(spec, bootstrap_server, master, settings, dry_run=False)
            return
        run = PipelineRun(find_file(path), bootstrap_server, master, checkpoint, once, settings)
        check_file(run.path)
        _report(f"starting Spark with the master {master}; its log is {run.log or 'discarded'}")
        with pipeline_session(run.path, master, run.log) as (spark, application):
            _report(f"Spark is ready; {_describe_ui(spark.sparkContext.uiWebUrl)}")
            _monitor(run.start(spark, application))


def validate_command(
    path: PathArgument, bootstrap_server: BootstrapServer = LOCAL, config: Settings = None
) -> None:
    """Check a pipeline without running it: import it and plan its queries. Does not connect to
    brokers."""
    with report_errors("pipeline validate"):
        from penstock.spark.pipeline.application import find_file
        from penstock.spark.pipeline.declarative import find_spec, run_project
        from penstock.spark.pipeline.run import pipeline_session, validate

        settings = parse_pairs(config or (), "setting")
        if spec := find_spec(path):
            run_project(spec, bootstrap_server, ALL_CORES, settings, dry_run=True)
            return
        with pipeline_session(find_file(path), "local[1]", ui=False) as (spark, application):
            for name, columns in validate(spark, application, bootstrap_server, settings).items():
                print(f"{name}: {columns}")


def status_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="The .py file or the directory of the pipeline, or the checkpoint directory.",
        ),
    ],
    bootstrap_server: BootstrapServer = LOCAL,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Show the last batch of each query, its offsets, and its lag."""
    with report_errors("pipeline status"):
        from penstock.cli.pipeline.output import print_status
        from penstock.spark.blocking_client import BlockingClient
        from penstock.spark.options import broker_options, sink_options
        from penstock.spark.pipeline.checkpoint import latest_offsets

        checkpoints = _checkpoints(path)
        partitions = {partition for query in checkpoints for partition in query.offsets}
        options = sink_options(broker_options(bootstrap_server))
        with BlockingClient(options.connection) as blocking:
            latest = blocking.call(lambda client: latest_offsets(client, partitions))
        print_status(checkpoints, latest, as_json=as_json)


def _checkpoints(path: Path) -> list[QueryCheckpoint]:
    """Return the checkpoints of a project, of a pipeline's file, or in a checkpoint directory."""
    from penstock.spark.pipeline.application import find_file
    from penstock.spark.pipeline.checkpoint import default_checkpoint, read_checkpoints
    from penstock.spark.pipeline.declarative import find_spec, project_checkpoints

    if spec := find_spec(path):
        return project_checkpoints(spec)
    file = find_file(path)
    return read_checkpoints(Path(default_checkpoint(file)) if file.suffix == ".py" else path)


def init_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty directory.")],
    declarative: Annotated[
        bool,
        typer.Option(
            "--declarative", help="Create a Spark Declarative Pipelines project in Python and SQL."
        ),
    ] = False,
) -> None:
    """Create a small pipeline that validates and runs."""
    from penstock.cli.pipeline.templates import write_project

    try:
        written = write_project(directory, declarative=declarative)
    except OSError as error:
        fail("pipeline init", f"{error.filename}: {error.strerror}")
    for path in written:
        print(path)


def _report(event: str) -> None:
    print(f"penstock pipeline run: {event}", file=sys.stderr, flush=True)


def _describe_ui(url: str | None) -> str:
    return f"its UI is {url}" if url else "its UI is off (spark.ui.enabled is false)"


def _monitor(queries: RunningQueries) -> None:
    """Show progress until the queries end or a signal stops them."""
    interrupted = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Replaces Spark's handler, which cancels running batches.
        signal.signal(number, stop)
    try:
        with _display(queries) as update:
            while queries.poll() and not interrupted.wait(_REDRAW_S):
                update()
            if interrupted.is_set():
                _report(
                    "stopping after the current batches; press Ctrl-C again to stop immediately"
                )
                queries.stop_between_batches(_STOP_TIMEOUT_S)
                queries.poll()
            update()
    finally:
        queries.stop()


@contextlib.contextmanager
def _display(queries: RunningQueries) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the current progress: a table on a terminal, otherwise a line per
    batch, and before the first batch a line per change of the query's status."""
    from penstock.cli.pipeline.output import batch_line, progress_table

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(
            progress_table(queries.progress), console=Console(stderr=True), auto_refresh=False
        ) as live:
            yield lambda: live.update(progress_table(queries.progress), refresh=True)
        return
    printed = dict(queries.progress)

    def print_new() -> None:
        for name, progress in queries.progress.items():
            new_batch = progress.batch is not None and progress.batch != printed[name].batch
            if new_batch or progress.rows != printed[name].rows:
                print(batch_line(name, progress), file=sys.stderr, flush=True)
            elif progress.batch is None and progress.status != printed[name].status:
                print(f"{name}: {progress.status}", file=sys.stderr, flush=True)
            printed[name] = progress

    yield print_new


@contextlib.contextmanager
def report_errors(command: str) -> Iterator[None]:
    """Print an error as one line on stderr and exit with code 1."""
    try:
        import pyspark  # noqa: F401 - checks that it is installed
    except ImportError:
        fail(command, "PySpark is not installed: run pip install 'penstock[spark]'")
    from penstock.spark.launchers import JavaNotFoundError
    from penstock.spark.options import OptionError
    from penstock.spark.pipeline.errors import PipelineError
    from penstock.spark.session import SessionError

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        exit_on_closed_pipe()
    except (
        CommandFailed,
        JavaNotFoundError,
        KafkaError,
        OptionError,
        PipelineError,
        SessionError,
    ) as error:
        fail(command, str(error))
