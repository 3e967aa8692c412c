"""Simulated log stores under crashes."""
