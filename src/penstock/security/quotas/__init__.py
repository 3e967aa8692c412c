"""Client quotas: which apply, how rates are measured, how long a client is throttled. PURE."""
