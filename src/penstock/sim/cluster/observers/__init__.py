"""Observers record what happens inside the nodes of a simulated cluster. Product code does not know
of them: they wrap its methods while a run lasts."""
