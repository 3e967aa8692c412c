"""Producer state: idempotence and transactions."""
