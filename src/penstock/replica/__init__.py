"""The replication rules of one partition: high watermark, in-sync replicas, truncation, fencing.
PURE."""
