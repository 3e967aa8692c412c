"""All options of `format("penstock")` with their defaults and checks.

    source.py         options of read and readStream: subscribe, failOnDataLoss, minPartitions, …
    offset_limits.py  startingOffsets, endingOffsets and their timestamp forms
    sink.py           options of write and writeStream
    kafka.py          options that start with kafka.: Kafka client settings
    values.py         parsers for numbers, booleans, durations and JSON

Names, defaults and meanings are those of Spark's own Kafka connector. Exceptions are noted where
they are defined. The package is pure: it knows neither Spark nor the cluster.
"""

from penstock.spark.options.kafka import ConnectionOptions, broker_options
from penstock.spark.options.sink import SinkOptions, sink_options
from penstock.spark.options.source import FetchOptions, SourceOptions, source_options
from penstock.spark.options.values import OptionError

__all__ = [
    "ConnectionOptions",
    "FetchOptions",
    "OptionError",
    "SinkOptions",
    "SourceOptions",
    "broker_options",
    "sink_options",
    "source_options",
]
