"""Registers format("penstock"): Spark imports every package named pyspark_* and uses its
DefaultSource."""

from penstock.spark.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
