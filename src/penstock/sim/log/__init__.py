"""Simulated log stores: operations, crashes and disk faults, and a model to check recovery
against."""
