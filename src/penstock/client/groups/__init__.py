"""Group members and group administration."""
