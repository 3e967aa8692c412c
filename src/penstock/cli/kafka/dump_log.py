"""kafka-dump-log.sh: print the files of a log in Kafka's format."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.segment_lines import (
    DumpFailed,
    aborted_lines,
    offset_index_lines,
    producer_lines,
    segment_lines,
    time_index_lines,
)
from penstock.world.real import RealDisk

_PURPOSE = (
    "This tool helps to parse a log file and dump its contents to the console, useful for "
    "debugging a seemingly corrupt log segment."
)
_OPTIONS = {
    "files": Option("REQUIRED: Files, separated by commas.", "String: file1, file2, ..."),
    "print-data-log": Option("Print the records of segments."),
    "deep-iteration": Option("Print the metadata of each record."),
    "skip-record-metadata": Option("Omit record metadata; print only keys and values."),
    "index-sanity-check": Option("Only check indexes."),
    "verify-index-only": Option("Compare indexes with their segment without printing entries."),
    "max-message-size": Option("Accepted and ignored.", "Integer: size"),
    "max-bytes": Option("Read at most this many bytes of a segment.", "Integer: size"),
    "value-decoder-class": Option("Only StringDecoder is supported.", "String"),
    "key-decoder-class": Option("Only StringDecoder is supported.", "String"),
    "offsets-decoder": Option("Decode the records of __consumer_offsets."),
    "transaction-log-decoder": Option("Decode the records of __transaction_state."),
    "cluster-metadata-decoder": Option("Decode the records of __cluster_metadata."),
}
_NO_JAVA = "is not supported: Java classes cannot be loaded"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("files")
        for name in ("value-decoder-class", "key-decoder-class"):
            if options.has(name) and not (options.value(name) or "").endswith("StringDecoder"):
                raise Refused(f"--{name} {options.value(name)} {_NO_JAVA}")
        failed = [
            path
            for path in (options.value("files") or "").split(",")
            if path.strip() and not _dump(path.strip(), options)
        ]
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    return 1 if failed else 0


def _dump(path: str, options: Options) -> bool:
    print(f"Dumping {path}")
    suffix = path[path.rfind(".") :]
    try:
        for line in _lines(path, suffix, options):
            print(line)
    except BrokenPipeError:  # The reader closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (DumpFailed, OSError) as error:
        print(error, file=sys.stderr)
        return False
    return True


def _lines(path: str, suffix: str, options: Options) -> Sequence[str]:
    disk = RealDisk()
    only_check, only_compare = options.has("index-sanity-check"), options.has("verify-index-only")
    match suffix:
        case ".log" | ".checkpoint":
            return list(segment_lines(disk, path, options))
        case ".index":
            return list(
                offset_index_lines(disk, path, only_check=only_check, only_compare=only_compare)
            )
        case ".timeindex":
            return list(
                time_index_lines(disk, path, only_check=only_check, only_compare=only_compare)
            )
        case ".txnindex":
            return list(aborted_lines(disk, path))
        case ".snapshot":
            return list(producer_lines(disk, path))
    print(f"Ignoring unknown file {path}", file=sys.stderr)
    return []
