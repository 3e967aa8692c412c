"""Shards: replicated state machines over the partitions of internal topics that this broker leads.

The machines are in `coordinator`; here they are loaded, run, written down and unloaded.
"""
