"""The clients of a simulated cluster. They record in the history what they see."""
