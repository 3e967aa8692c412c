"""Kafka's own command line tools by their own names, with their flags, outputs and exit codes, thin
over what `penstock` does.

Where Kafka prints a Java stack trace below an error, the error alone is printed.
"""
