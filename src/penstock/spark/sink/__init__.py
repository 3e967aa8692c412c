"""The Spark sink for batch and streaming writes to topics."""
