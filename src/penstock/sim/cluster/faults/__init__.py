"""The faults of a simulated cluster: which nodes a fault may hit, and the faults themselves."""
