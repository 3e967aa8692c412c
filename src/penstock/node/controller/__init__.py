"""The active controller."""
