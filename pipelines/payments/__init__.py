"""A stream of payments on Spark: made up from a seed, totalled, watched for fraud, and balanced to
the cent."""
