"""The Spark source: batch and streaming reads of topics.

batch.py          DataSourceReader: plans a batch query and reads its partitions
stream.py         DataSourceStreamReader: initialOffset, latestOffset, partitions
offsets.py        the source's offset, as Spark writes it to the checkpoint
ranges.py         offset ranges: resume, rate limit, split into input partitions
offset_reader.py  topics, partitions and offsets from the cluster
fetcher.py        Fetch requests for one offset range
data_loss.py      failOnDataLoss
pushdown.py       filter pushdown
"""
