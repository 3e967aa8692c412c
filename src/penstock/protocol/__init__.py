"""The wire protocol: messages as frozen dataclasses, codecs compiled from their declarations,
headers and frames.

Pure: bytes in, values out, and the reverse. This room must never know of sockets, files or what a
message is answered with.
"""
