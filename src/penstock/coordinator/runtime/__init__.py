"""The runtime shared by replicated state machines over one partition of an internal topic."""
