"""Weights of single attentions and MLPs, from which the schemes are put together."""
