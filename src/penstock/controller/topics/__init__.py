"""Topics are created, extended and deleted."""
