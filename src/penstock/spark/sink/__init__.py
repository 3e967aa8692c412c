"""The Spark sink: writes rows to topics.

writer.py  DataSourceArrowWriter: rows to record batches per partition
sender.py  Produce requests: order, retries, bounded memory
"""
