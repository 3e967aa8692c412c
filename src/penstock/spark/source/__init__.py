"""The Spark source for batch and streaming reads of topics."""
