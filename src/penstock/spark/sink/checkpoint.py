"""Reads the query id and a hash of the offsets of a batch from a query's checkpoint.

Only checkpoints in a local file system can be read. Spark writes `metadata` when the query starts,
and `offsets/<batch id>` before the batch runs; a repeated batch has the same file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.spark.options import OptionError
from penstock.spark.options.sink import AT_LEAST_ONCE, check_name

logger = logging.getLogger(__name__)

# The property with the query id, in the thread that runs a micro-batch and in its tasks.
QUERY_ID_PROPERTY = "sql.streaming.queryId"

_MAX_METADATA_BYTES = 64 * 1024


def default_sink_name(location: str | None) -> str:
    """Return the query id of the checkpoint. OptionError if it cannot be read."""
    advice = (
        "add the option sinkName with a name that no other query uses, or set delivery to "
        f"{AT_LEAST_ONCE}"
    )
    if location is None:
        raise OptionError(
            "exactly-once delivery needs the name of the sink, and its default is in the "
            f"checkpoint: set checkpointLocation as an option of this stream, or {advice}"
        )
    directory = local_directory(location)
    if directory is None:
        raise OptionError(
            f"the checkpoint {location} is not in a local file system, so its query id cannot be "
            f"the name of the sink: {advice}"
        )
    file = directory / "metadata"
    try:
        with file.open("rb") as opened:
            query_id = json.loads(opened.read(_MAX_METADATA_BYTES))["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"the query id in {file}, the default name of the sink, cannot be read ({error}): "
            f"{advice}"
        ) from error
    return check_name(f"the query id in {file}", str(query_id))


def offsets_sha256(location: str | None, batch_id: int) -> str | None:
    """Return the SHA-256 of the offsets of a batch, or None if there is no local checkpoint."""
    directory = None if location is None else local_directory(location)
    if directory is None:
        return None
    try:
        return hashlib.sha256((directory / "offsets" / str(batch_id)).read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


_warned: set[str] = set()


def warn_without_offsets(sink: str, location: str | None) -> None:
    """Warn, once for each sink, that a restored checkpoint may not be recognized."""
    if sink in _warned or (location is not None and local_directory(location) is not None):
        return
    _warned.add(sink)
    logger.warning(
        "sink %s cannot read the offsets of its batches: %s. If an older checkpoint is restored "
        "whose next batch has the id of the last written one but other offsets, the rows of that "
        "batch are lost. Restore no older checkpoint of this query, or start a new query with an "
        "empty checkpoint and another sinkName",
        sink,
        "checkpointLocation is no option of the stream"
        if location is None
        else f"the checkpoint {location} is not in a local file system",
    )


def local_directory(location: str) -> Path | None:
    """Return the directory of a path or a file: URI, or None for another file system."""
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)
