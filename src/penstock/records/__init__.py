"""Record batches of format v2: headers and checks, records, building and compression. PURE.

Brokers need `batch` only, which never reads a record. Clients, compaction, Spark and the command
line use the rest.
"""
