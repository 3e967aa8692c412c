"""kafka-delete-records.sh: delete the records before an offset of each partition."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = "This tool helps to delete records of the given partitions down to the specified offset."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: Bootstrap brokers.", "String: server(s) to use for bootstrapping"
    ),
    "command-config": Option(
        "A properties file for the client.", "String: command config property file path"
    ),
    "offset-json-file": Option(
        'REQUIRED: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], '
        '"version": 1}; -1 deletes up to the high watermark.',
        "String: Offset json file path",
    ),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("bootstrap-server", "offset-json-file")
        before = _read(options.value("offset-json-file") or "")
        with_admin(
            options.value("bootstrap-server") or "",
            options.value("command-config"),
            lambda client: _delete(client, before),
        )
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


async def _delete(client: Client, before: dict[TopicPartition, int]) -> None:
    print("Executing records delete operation")
    results = await asyncio.gather(
        *(client.admin.delete_records({partition: offset}) for partition, offset in before.items()),
        return_exceptions=True,
    )
    print("Records delete operation completed:")
    for partition, result in zip(before, results, strict=True):
        if isinstance(result, KafkaError):
            print(f"partition: {partition}\terror: {java_text(result)}")
        elif isinstance(result, BaseException):
            raise result
        else:
            print(f"partition: {partition}\tlow_watermark: {result[partition]}")


def _read(file: str) -> dict[TopicPartition, int]:
    try:
        data = json.loads(Path(file).read_text())
        if data.get("version", 1) != 1:
            raise Refused(f"Not supported version field value {data['version']}")
        rows = [
            (TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"]))
            for row in data["partitions"]
        ]
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"The input string is not a valid JSON: {file}: {error!r}") from error
    partitions = [partition for partition, _offset in rows]
    duplicates = sorted(
        {str(partition) for partition in partitions if partitions.count(partition) > 1}
    )
    if duplicates:
        raise Refused(
            f"Offset json file contains duplicate topic partitions: {', '.join(duplicates)}"
        )
    return dict(rows)
