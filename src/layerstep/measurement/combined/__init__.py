"""Identification of a whole model: everything it allows, in one result."""
