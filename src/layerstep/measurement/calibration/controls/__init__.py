"""Trained controls: small networks taught, by interventions on their states, to run one known solver each.

A control is a layerstep GPT whose residual stream carries a solver's state along fixed, known directions: what is
written there is what later layers go on from. Beside the positive controls stand networks of the same size whose state
can be read but is not used (decoys), networks trained on labels alone, and solvers next to those of the library.

    python -m layerstep.measurement.calibration.controls.trainer --out results/controls
"""
