"""Gives each stream writer of a pipeline its name, its checkpoint and its sink.

A writer to a topic in update mode writes through `foreachBatch`, since Spark refuses update mode
for sinks in Python (see `penstock.spark.foreach_batch`). A writer whose checkpoint is not on this
machine gets a sink name: the sink cannot read the id of the query from such a checkpoint.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.spark.datasource import PenstockDataSource
from penstock.spark.foreach_batch import foreach_batch
from penstock.spark.sink.checkpoint import local_directory

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SINK_NAME = "sinkName"
# Options of the stream that a batch write does not have.
_STREAM_OPTIONS = ("checkpointlocation", "queryname")
_DIGEST_CHARACTERS = 16


def configured(
    writer: DataStreamWriter, name: str, checkpoint: str, *, once: bool
) -> DataStreamWriter:
    """Set the name, the checkpoint and, with `once`, the trigger of a writer."""
    location = f"{checkpoint}/{name}"
    named = writer.queryName(name).option("checkpointLocation", location)
    triggered = named.trigger(availableNow=True) if once else named
    return _topic_writer(triggered, location) if _writes_topic(writer) else triggered


def writer_field(writer: DataStreamWriter, name: str) -> Any:
    """Read a private field of Spark's writer; it has no public accessor."""
    declared = writer._jwrite.getClass().getDeclaredField(name)
    declared.setAccessible(True)
    return declared.get(writer._jwrite)


def sink_name(location: str) -> str:
    """Return the sink name of a query by the URI of its checkpoint."""
    name = location.rstrip("/").rpartition("/")[2]
    return f"{name}-{hashlib.sha256(location.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def _writes_topic(writer: DataStreamWriter) -> bool:
    return bool(writer_field(writer, "source") == PenstockDataSource.name())


def _topic_writer(writer: DataStreamWriter, location: str) -> DataStreamWriter:
    options = _options(writer)
    given = {name.lower(): name for name in options}
    sink = options.get(given.get(_SINK_NAME.lower(), ""), "")
    if writer_field(writer, "outputMode").toString() == "Update":
        kept = {
            name: value
            for name, value in options.items()
            if name.lower() not in (*_STREAM_OPTIONS, _SINK_NAME.lower())
        }
        return writer.foreachBatch(foreach_batch(**({"txnAppId": sink} if sink else {}), **kept))
    if local_directory(location) is None and not sink:
        return writer.option(_SINK_NAME, sink_name(location))
    return writer


def _options(writer: DataStreamWriter) -> dict[str, str]:
    """Return the options of a writer as the user spelled them."""
    original = writer_field(writer, "extraOptions").originalMap()
    names = original.keys().iterator()
    options = {}
    while names.hasNext():
        name = names.next()
        options[name] = original.apply(name)
    return options
