"""Coordinators as replicated state machines over internal topics: groups and their offsets over
__consumer_offsets. PURE: no sockets, files, clocks or tasks."""
