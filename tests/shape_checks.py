"""The checker that conftest.py puts on every function: shapes and types, where an int may stand for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
