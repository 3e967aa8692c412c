"""The runtime of replicated state machines: pure machines over one partition of an internal topic.

The shell that runs them is `node/shards`.
"""
