"""Example pipeline: generates payments, computes totals and fraud alerts on Spark, and audits the
result to the cent."""
