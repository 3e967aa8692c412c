"""The producer: partitioner, record accumulator and sender."""
