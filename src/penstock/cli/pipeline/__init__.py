"""Creates, validates, runs and inspects data pipelines on Spark (penstock pipeline)."""
