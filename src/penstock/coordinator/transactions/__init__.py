"""Transactions: the transaction coordinator over one partition of __transaction_state. PURE."""
