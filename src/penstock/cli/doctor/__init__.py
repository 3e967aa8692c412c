"""Finds out what is wrong with a cluster, why, and what to do (penstock doctor)."""
