"""PURE. KRaft consensus for the metadata log (KIP-595, KIP-630, KIP-996). Start with `machine`."""
