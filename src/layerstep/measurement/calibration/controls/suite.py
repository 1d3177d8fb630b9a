"""The controls: which network, which solver, which task. A new control is one entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from layerstep.errors import require_choice
from layerstep.measurement.calibration.controls.mechanism import Boost, Descent, Dual, Functional, Mechanism, chebyshev
from layerstep.tasks import Task
from layerstep.training import Model, Run

#: positive: runs its mechanism. near-miss: runs a solver next to those of the library. decoy: its heads hold the
#: mechanism's states, nothing later uses them, and its output is trained on labels. labels: trained on labels alone.
Kind = Literal["positive", "near-miss", "decoy", "labels"]

#: Fixed steps for up to 24 examples on the sphere: the largest eigenvalue of K is about 11, that of K (K + lam I) 120.
FIXED_STEP, DESCENT_STEP = 1 / 12, 1 / 140
#: Under a causal mask steps are not normal: larger ones grow before they shrink.
CAUSAL_STEP = 1 / 9
#: The interval of the Chebyshev recursion; the spectrum of D^-1/2 (K + lam I) D^-1/2 ends at 1.
INTERVAL = (0.02, 1.02)


@dataclass(frozen=True, kw_only=True)
class Control:
    """One network to train. `run` has its task, shape, seed and schedule; `mechanism` is None where labels are all."""

    name: str
    kind: Kind
    run: Run
    mechanism: Mechanism | None = None

    @property
    def mask(self) -> str:
        return self.run.model.mask


def controls(
    only: Sequence[str] = (),
    *,
    layers: int = 8,
    width: int = 128,
    heads: int = 4,
    N: int = 24,
    d: int = 5,
    batch: int = 64,
    seed: int = 0,
) -> list[Control]:
    """The controls of these names, or all, of one size, open mask first; those of one mask train stacked."""
    gains, carries = chebyshev(*INTERVAL, steps=layers)
    sphere, uniform, gaussian = (Task(inputs=inputs, N=N, d=d) for inputs in ("sphere", "uniform", "gaussian"))
    fixed, slower = ({"scales": ("none",), "gains": (step,)} for step in (FIXED_STEP, CAUSAL_STEP))
    richardson = Functional(solver="richardson")
    listed: list[tuple[str, Kind, Task, Mechanism | None]] = [
        ("richardson-functional", "positive", sphere, richardson),
        ("richardson-dual", "positive", sphere, Dual(solver="richardson")),
        ("richardson-fixed", "positive", sphere, Dual(solver="richardson-fixed", **fixed)),
        ("gd", "positive", sphere, Descent(solver="gd", eta=DESCENT_STEP)),
        ("boost", "positive", sphere, Boost(solver="boost")),
        ("chebyshev", "positive", sphere, Dual(solver="chebyshev", gains=gains, carries=carries)),
        ("richardson-functional-gaussian", "positive", gaussian, richardson),
        ("richardson-dual-uniform", "positive", uniform, Dual(solver="richardson")),
        ("near-bandwidth", "near-miss", sphere, Functional(solver="richardson", v=1.6)),
        (
            "near-two-in-turn",
            "near-miss",
            sphere,
            Dual(solver="richardson, richardson-fixed", scales=("row-sum", "none"), gains=_alternating(layers)),
        ),
        ("decoy-functional", "decoy", sphere, richardson),
        ("decoy-dual", "decoy", sphere, Dual(solver="richardson")),
        ("labels", "labels", sphere, None),
        ("labels-gaussian", "labels", gaussian, None),
    ]
    causal: list[tuple[str, Kind, Task, Mechanism | None]] = [
        ("causal-richardson", "positive", sphere, Dual(solver="causal-richardson", first=2)),
        ("causal-boost", "positive", sphere, Boost(solver="causal-boost", first=2)),
        ("causal-decoy", "decoy", sphere, Dual(solver="causal-richardson", first=2)),
        ("causal-labels", "labels", sphere, None),
        ("causal-richardson-fixed", "positive", sphere, Dual(solver="causal-richardson-fixed", first=2, **slower)),
    ]
    for name in only:
        require_choice("only", name, [name for name, *_ in (*listed, *causal)])
    return [
        Control(
            name=name,
            kind=kind,
            mechanism=mechanism,
            run=Run(
                task=task,
                model=Model(layers=layers, heads=heads, width=width, mask=mask),
                seed=seed * 100 + index,
                batch=batch,
                lr=1e-3,
                lr_final=1e-5,
                warmup=500,
                weight_decay=0.0,
                curriculum_every=0,
            ),
        )
        for mask, entries in (("open", listed), ("causal", causal))
        for index, (name, kind, task, mechanism) in enumerate(entries)
        if not only or name in only
    ]


def _alternating(layers: int) -> Sequence[float]:
    return [1.0 if index % 2 == 0 else FIXED_STEP for index in range(layers)]
