"""What `penstock up --secure` and `penstock.Cluster(secure=True)` set up: an authority, the
certificates of nodes, logins, and the settings of nodes and clients."""
