"""One partition on this node."""
