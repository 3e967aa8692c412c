"""Spark looks for packages named pyspark_* when it meets a format that it does not know: this is
how it finds format("penstock")."""

from penstock.spark.format import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
