"""From a model to its trajectory: activation hooks and probes."""
