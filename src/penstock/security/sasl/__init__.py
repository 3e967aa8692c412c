"""SASL mechanisms as pure state machines: messages in, messages out. PURE."""
