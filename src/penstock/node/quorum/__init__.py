"""SHELL. This node's part of the metadata quorum (KRaft). Start with `quorum`."""
