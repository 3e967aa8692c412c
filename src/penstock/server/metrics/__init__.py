"""The page of metrics: its listener, and the samples of the server and the process."""
