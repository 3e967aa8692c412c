"""penstock pipeline: makes, checks, runs and looks at data pipelines on Spark."""

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
    end_unread,
    fail,
    parse_pairs,
)
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.spark.pipeline.queries import Queries

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A pipeline's .py file, or the directory of a spark-pipeline.yml."
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", help="Spark's master: local[*], spark://…, yarn or k8s://….", metavar="URL"
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        help="Where it keeps how far it is; .checkpoint beside PATH without it.",
        metavar="DIR",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-c", "--config", metavar="KEY=VALUE", help="For the pipeline's own use; may be repeated."
    ),
]

ALL_CORES = "local[*]"
_REDRAW_S = 0.5
# A batch that is not done by then is stopped in its middle, and done again by the next run.
_STOP_WITHIN_S = 60.0


def run_command(
    path: PathArgument,
    bootstrap_server: BootstrapServer = LOCAL,
    master: Master = ALL_CORES,
    checkpoint: Checkpoint = "",
    once: Annotated[bool, typer.Option("--once", help="Drains what is there, and ends.")] = False,
    config: Settings = None,
) -> None:
    """Runs a pipeline, and shows its progress. Ctrl-C stops it when its batches are done; a second
    one, at once."""
    with told("pipeline run"):
        from penstock.spark.pipeline.declarative import run_project, spec_of
        from penstock.spark.pipeline.run import Run, check_brokers, prepared

        run = Run(
            path, bootstrap_server, master, checkpoint, once, parse_pairs(config or (), "setting")
        )
        check_brokers(bootstrap_server)
        if spec := spec_of(path):
            if checkpoint:
                raise CommandFailed(
                    "--checkpoint is for a pipeline's .py file: where this project keeps how far "
                    f"it is, storage in {spec} says"
                )
            run_project(spec, bootstrap_server, master, run.settings, dry=False)
            return
        with prepared(path, master, run.log) as (spark, application):
            _follow(run.start(spark, application))


def validate_command(
    path: PathArgument, bootstrap_server: BootstrapServer = LOCAL, config: Settings = None
) -> None:
    """Checks a pipeline without running it: imports it, and plans its queries. No broker is
    asked."""
    with told("pipeline validate"):
        from penstock.spark.pipeline.declarative import run_project, spec_of
        from penstock.spark.pipeline.run import prepared
        from penstock.spark.pipeline.validate import planned

        settings = parse_pairs(config or (), "setting")
        if spec := spec_of(path):
            run_project(spec, bootstrap_server, ALL_CORES, settings, dry=True)
            return
        with prepared(path, "local[1]") as (spark, application):
            for name, columns in planned(spark, application, bootstrap_server, settings).items():
                print(f"{name}: {columns}")


def status_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="The directory given as --checkpoint, or the pipeline's file."
        ),
    ],
    bootstrap_server: BootstrapServer = LOCAL,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """Shows how far the queries of a pipeline are: the last batch of each, its offsets, and how far
    behind the topics' ends they are."""
    with told("pipeline status"):
        from penstock.cli.pipeline_lines import status_lines
        from penstock.spark.background import Background
        from penstock.spark.options import sink_options
        from penstock.spark.pipeline.checkpoint import default_checkpoint, ends_of, queries_of

        queries = queries_of(Path(default_checkpoint(path)) if path.suffix == ".py" else path)
        partitions = {one for query in queries for one in query.offsets}
        with Background(
            sink_options({"kafka.bootstrap.servers": bootstrap_server}).connection
        ) as background:
            ends = background.call(lambda client: ends_of(client, partitions))
        for line in status_lines(queries, ends, as_json=as_json):
            print(line)


def init_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new directory, or an empty one.")
    ],
    declarative: Annotated[
        bool,
        typer.Option(
            "--declarative", help="A project for Spark Declarative Pipelines, in Python and SQL."
        ),
    ] = False,
) -> None:
    """Writes a small pipeline that validates and runs."""
    from penstock.cli.pipeline_new import write_project

    try:
        written = write_project(directory, declarative=declarative)
    except OSError as error:
        fail("pipeline init", f"{error.filename}: {error.strerror}")
    for path in written:
        print(path)


def _follow(queries: Queries) -> None:
    """Until they end by themselves or somebody stops them."""
    asked = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Spark's own handler would cancel the batches.
        signal.signal(number, stop)
    try:
        with _shown(queries) as show:
            while queries.follow() and not asked.wait(_REDRAW_S):
                show()
            if asked.is_set():
                print(
                    (
                        "penstock pipeline run: stopping when the batches are done; once more to "
                        "stop "
                        "now"
                    ),
                    file=sys.stderr,
                )
                queries.stop_between_batches(_STOP_WITHIN_S)
                queries.follow()
            show()
    finally:
        queries.stop()


@contextlib.contextmanager
def _shown(queries: Queries) -> Iterator[Callable[[], None]]:
    """What to call when there may be news: on a terminal the table is drawn again, elsewhere each
    batch is a line."""
    from penstock.cli.pipeline_lines import batch_line, progress_table

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(
            progress_table(queries.progress), console=Console(stderr=True), auto_refresh=False
        ) as live:
            yield lambda: live.update(progress_table(queries.progress), refresh=True)
        return
    told = dict(queries.progress)

    def tell() -> None:
        for name, one in queries.progress.items():
            if one.rows != told[name].rows or (
                one.batch is not None and one.batch != told[name].batch
            ):
                print(batch_line(name, one), file=sys.stderr, flush=True)
                told[name] = one

    yield tell


@contextlib.contextmanager
def told(command: str) -> Iterator[None]:
    """Every failure becomes one line on stderr and the exit code 1."""
    try:
        import pyspark  # noqa: F401 - whether it is there
    except ImportError:
        fail(command, "PySpark is not installed: pip install 'penstock[spark]'")
    from penstock.spark.java import NoJava
    from penstock.spark.option_values import OptionError
    from penstock.spark.pipeline.errors import PipelineError
    from penstock.spark.session import NoSession

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        end_unread()
    except (CommandFailed, KafkaError, NoJava, NoSession, OptionError, PipelineError) as error:
        fail(command, str(error))
