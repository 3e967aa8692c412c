"""The producer with its partitioner, record accumulator and sender."""
