"""Simulated quorums of controllers."""
