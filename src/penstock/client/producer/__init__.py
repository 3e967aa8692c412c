"""The producer with its partitioner, record accumulator, sender and transactions."""
