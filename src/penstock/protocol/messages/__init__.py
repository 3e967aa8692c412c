"""One module per API, each with its request and its response. Import the one you need: creating a
dataclass costs about a millisecond, so nothing may import all of them. `penstock.protocol.apis`
finds them by key."""
