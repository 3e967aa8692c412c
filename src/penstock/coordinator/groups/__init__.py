"""The group state machine: groups of both protocols over one partition of __consumer_offsets."""
