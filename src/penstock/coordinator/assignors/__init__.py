"""Assignors: which member of a consumer group gets which partitions."""
