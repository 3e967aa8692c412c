"""Kafka's command line tools under their own names, with Kafka's options, output and exit codes.

Where Kafka prints a Java stack trace after an error, only the error is printed.
"""
