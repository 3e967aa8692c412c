"""Kafka's wire protocol: messages as frozen dataclasses, codecs compiled from their declarations,
headers and frames.

Pure: bytes in, values out, and the reverse. No sockets, no files, no handling of messages.
"""
