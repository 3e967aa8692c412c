"""Consumer groups (KIP-848), and classic members inside them."""
