"""Connections: bytes in, requests to handlers, answers out in order."""
