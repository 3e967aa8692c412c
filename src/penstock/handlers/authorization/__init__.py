"""What a client needs to be allowed for each API, and the checks.

`table` maps every API to its check. If the node has an authorizer, `guarded` wraps the handler of
each API in its check, which runs first: it passes on the part of the request that is allowed, and
adds the errors of the rest to the response. Handlers that page, encode or remember what they return
ask `context.guard` themselves; the table names them too. Without an authorizer nothing is wrapped
and `context.guard` is None.
"""
