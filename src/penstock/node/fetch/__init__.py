"""Fetch: sessions, reads and delayed responses for consumers and followers."""
