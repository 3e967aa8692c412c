"""Decisions over the cluster's metadata: an image and a request in, records and a response out.
PURE."""
