"""The consumer: fetcher, group coordinator client, and consumers with and without a group."""
