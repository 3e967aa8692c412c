"""Typed settings: what can be set, what was set, and what that means for a node and for a topic's
log. Reads no files itself."""
