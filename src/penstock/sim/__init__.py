"""Runs in a simulated world, with faults, and the checkers that judge them. One seed is one run,
and the same run every time."""
