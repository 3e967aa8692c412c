"""Consumers with and without a group, their fetcher and their coordinator."""
