"""How fast this machine is, and how fast a model runs on it."""
