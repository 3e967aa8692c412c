"""The faults of a test cluster: what a test asks for, and how a node's process makes it happen."""
