"""Sources of metrics: each reads a part of the node when a page is asked for."""
