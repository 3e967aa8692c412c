"""Brokers register, send heartbeats, are fenced and unfenced."""
