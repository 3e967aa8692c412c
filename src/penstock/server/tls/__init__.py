"""TLS listeners: accepting, the line of handshakes, principals of client certificates."""
