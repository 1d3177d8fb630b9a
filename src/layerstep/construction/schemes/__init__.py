"""The networks: one file per scheme."""
