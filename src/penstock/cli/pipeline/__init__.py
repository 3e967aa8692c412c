"""penstock pipeline: create, validate, run and inspect data pipelines on Spark."""
