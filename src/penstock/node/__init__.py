"""Everything that awaits on behalf of a node: its partitions, its metadata log, its upkeep."""
