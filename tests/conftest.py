"""Shapes written in signatures are checked while the tests run; threads are kept to what the machine has."""

from jaxtyping import install_import_hook

install_import_hook("layerstep", "beartype.beartype")
