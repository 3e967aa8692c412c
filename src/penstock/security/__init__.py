"""Security: principals, authentication, authorization and quotas. Pure but for TLS."""
