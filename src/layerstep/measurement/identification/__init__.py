"""From a trajectory to a verdict: which solver the layers follow, or that they follow none."""
