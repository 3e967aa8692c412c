"""Listeners and connections: bytes in, requests to handlers, responses out in order."""
