"""A broker: registration, heartbeats, forwarding to the controller, periodic work."""
