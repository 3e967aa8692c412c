"""What a cluster keeps in its own logs and files, declared and encoded by the same means as the
messages of the wire."""
