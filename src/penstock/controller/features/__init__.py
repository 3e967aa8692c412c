"""Feature levels."""
