"""The disk: partitions as append-only logs in Kafka's own files.

Callers tell a `Log` what to append, where to truncate and how far a reader may see. It knows
nothing of leaders, replicas or the network.
"""
