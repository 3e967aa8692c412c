"""Groups and their offsets, decided over the records of `__consumer_offsets`. PURE: no sockets,
files, clocks or tasks."""
