"""Inspect the files of a log (penstock log)."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock.log.dump import CannotDump, dump
from penstock.world.real import RealDisk


def dump_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Segments, indexes, producer snapshots or checkpoints.", metavar="FILE..."
        ),
    ],
    records: Annotated[
        bool,
        typer.Option(
            "--records/--no-records", help="Show every record of a segment, not only its batches."
        ),
    ] = False,
) -> None:
    """Print the contents of log files, and check them."""
    failed = False
    for path in files:
        if len(files) > 1:
            print(f"{path}:")
        try:
            # The name of its directory tells whether a segment is of a coordinator's log.
            for line in dump(RealDisk(), os.path.abspath(path), records=records):
                print(line)
        except (CannotDump, OSError) as error:
            failed = True
            print(f"penstock log dump: {error}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
