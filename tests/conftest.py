"""Shapes and types written in signatures are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("layerstep", "shape_checks.check")
