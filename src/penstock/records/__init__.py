"""Record batches of format v2: their headers and checks, the records inside, building and
compression. Pure: bytes in, values out.

Brokers need `batch` alone, which never looks at a record. Clients, compaction, Spark and the
command line use the rest.
"""
