"""Transactional clients of cluster runs: producers of all protocols, copiers, readers, and an
adversary that repeats their requests late."""
