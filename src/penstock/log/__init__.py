"""The disk: partitions as append-only logs in Kafka's own files.

A `Log` is told what to append, where to truncate and how far a reader may see; it knows nothing of
leaders, replicas or the network.
"""
