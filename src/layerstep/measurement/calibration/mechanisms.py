"""Planted mechanisms: networks without training whose layers are known, drawn by seed.

    mechanism = Mechanism(solver="richardson", form="dual", mask="open", steps=(2, 2, 1, 3))
    reader = mechanism.reader(task)          # read and edited as any user's model
    positives(task, 40, seed=0)              # forty of them, drawn; `near_misses` likewise

A positive takes the steps of one solver with one bandwidth. A negative does something that must not be called one:
`decoy` (a solver's state is readable in every layer and used by none), a near miss, or no mechanism at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.errors import require_choice
from layerstep.measurement.calibration.mechanism_network import (
    RULES,
    Context,
    Embedding,
    Frame,
    conjugate,
    exact,
    half_step,
    interleaved,
    iterate,
    momentum,
    paired,
    rules_of,
    typical_size,
)
from layerstep.measurement.reading.hooks import Hooked
from layerstep.tasks import Task, sample

#: Solvers whose every state fits into the tokens under a mask (docs/interventions.md says why they differ).
POSITIVE = {
    "open": ("richardson", "richardson-fixed", "gd", "boost"),
    "causal": ("causal-richardson", "causal-richardson-fixed", "causal-boost"),
}
FORMS = ("functional", "dual")
#: Prompts that the size of a solver's own steps and states is measured on.
SIZED_ON = 64


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What a planted network does. `truth` is what an instrument may claim of it.

    kind: "solver"; "halves" (the dual form, half a step per layer: the residual is noted, then the coefficients move:
    a state of two numbers); or of the near misses "alternating" (odd layers take the steps of `other`), "drifting" (the
    bandwidth changes from layer to layer), "uneven" (the size of the steps does), "momentum", "conjugate-gradients"
    (open mask only: its step sizes are sums over all examples), "readable" (the path of `solver` is written into every
    layer, the output is exact KRR or a kernel average made of the inputs anew).
    steps: how many steps each layer takes. size: steps of one size on all prompts, so many times what the solver's own
    are on average; None: the solver's own. v: the bandwidth of its kernel. decoy: "exact" or a solver's name.
    leak: how much of a distractor each reading of the state picks up, in units of the state half-way.
    """

    solver: str
    form: str = "functional"
    mask: str = "causal"
    kind: str = "solver"
    other: str = ""
    steps: tuple[int, ...] = (2, 2, 2, 2)
    size: float | None = None
    v: float = 1.0
    decoy: str = "exact"
    leak: float = 0.0
    distractors: int = 6
    width: int = 48
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("mask", self.mask, list(POSITIVE))
        require_choice("form", self.form, FORMS)
        require_choice("solver", self.solver, list(RULES))

    @property
    def truth(self) -> tuple[str, str] | None:
        """(solver, form), or None where nothing may be claimed."""
        positive = self.kind in ("solver", "halves") and self.solver in POSITIVE[self.mask]
        return (self.solver, self.form) if positive else None

    @property
    def steps_left(self) -> tuple[int, ...]:
        """After the embedding and after every layer. Between two halves of a step what is written into the coefficients
        finds the residual noted already."""
        if self.kind == "halves":
            layers = len(self.steps)
            return tuple((layers - 1 - at - (at % 2 == 0)) // 2 for at in range(-1, layers))
        left = np.cumsum((0, *self.steps[::-1]))[::-1]
        return tuple(int(k) for k in left)

    @property
    def group(self) -> str:
        if self.truth:
            return "positive"
        if self.kind == "readable":
            return "decoy"
        return "random" if self.solver == "random-attention" else "near miss"

    def eta(self, task: Task, solver: str = "") -> float | None:
        """The size of the steps on all prompts, None for the solver's own; or of the steps of `other`."""
        if self.size is None:
            return None
        return self.size * typical_size(solver or self.solver, self._examples(task), self.v)

    def state_rms(self, task: Task) -> float:
        """Of its state half-way."""
        context = self._examples(task)
        rules = rules_of(self.solver, context, self.v, self.eta(task))
        start = context.y if self.form == "functional" else torch.zeros_like(context.y)
        f = context.xq.new_zeros(context.xq.shape[:2])
        state, _ = iterate(rules, context.y, self.form, start, f, 1 + sum(self.steps) // 2)
        return float(state.square().mean().sqrt())

    def _examples(self, task: Task) -> Context:
        prompts = sample(task, SIZED_ON, self.seed, 2)
        x, one = prompts.x.double(), torch.ones(task.N, task.N, dtype=torch.float64)
        return Context(
            x=x[:, :-1],
            xq=x[:, -1:],
            y=prompts.y.double()[:, :-1],
            visible=one.tril() if self.mask == "causal" else one,
            visible_q=one[-1:],
            kernel=task.kernel,
            lam=task.lam,
        )

    def network(self, task: Task) -> PlantedNetwork:
        return PlantedNetwork(self, task)

    def reader(self, task: Task) -> Hooked:
        """Read by the same code as any user's model."""
        network = self.network(task)
        modules = ["embedding", *(f"layers.{index}" for index in range(len(self.steps)))]
        tokens = interleaved if self.mask == "causal" else paired
        return Hooked(model=network, inputs=tokens, modules=modules, mask=self.mask)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


class PlantedNetwork(nn.Module):
    """The network of a mechanism: an embedding, layers, and a linear head that reads f at the queries."""

    def __init__(self, mechanism: Mechanism, task: Task) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(mechanism.seed)
        self.frame = Frame(task.d, mechanism.distractors, mechanism.width, generator)
        self.embedding = Embedding(self.frame, mechanism.form)
        solvers = {mechanism.solver, mechanism.other} & set(RULES)
        eta = {solver: mechanism.eta(task, solver) for solver in solvers}
        leak = mechanism.leak and mechanism.leak * mechanism.state_rms(task)
        starts = np.cumsum((0, *mechanism.steps))[:-1]
        layers = (
            PlantedLayer(mechanism, task, eta, leak, self.frame, index, int(start), generator)
            for index, start in enumerate(starts)
        )
        self.layers = nn.ModuleList(layers)
        self.mask = mechanism.mask
        self.eval()

    def forward(self, tokens: Float[Tensor, "B T F"]) -> Float[Tensor, "B Q"]:
        h = self.embedding(tokens)
        for layer in self.layers:
            h = layer(h)
        queries = slice(0, None, 2) if self.mask == "causal" else slice(-1, None)
        return self.frame.read(h[:, queries], "f")


class PlantedLayer(nn.Module):
    """Reads x, y and the state off the stream, takes its steps, adds what has changed; writes the decoy beside it."""

    mixing: Tensor

    def __init__(
        self,
        mechanism: Mechanism,
        task: Task,
        eta: dict[str, float | None],
        leak: float,
        frame: Frame,
        index: int,
        start: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.mechanism, self.task, self.eta, self.leak, self.frame = mechanism, task, eta, leak, frame
        self.index, self.start, self.count = index, start, mechanism.steps[index]
        shape = (task.d + 1, mechanism.distractors)
        self.register_buffer("mixing", torch.randn(shape, dtype=torch.float64, generator=generator))

    def forward(self, h: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        causal = self.mechanism.mask == "causal"
        examples, queries = (slice(1, -1, 2), slice(0, None, 2)) if causal else (slice(0, -1), slice(-1, None))
        he, hq = h[:, examples], h[:, queries]
        context = self._context(he, hq)
        read = self.frame.read
        state, second, f = read(he, "state"), read(he, "second"), read(hq, "f")
        if self.leak:
            state = state + self.leak * read(he, "distractors")[..., 0]
        changes = self._step(context, state, second, f)
        own = torch.cat([read(he, "x"), read(he, "y")[..., None]], -1)
        own_q = torch.cat([read(hq, "x"), torch.zeros_like(read(hq, "f"))[..., None]], -1)
        at_examples = {"distractors": torch.tanh(own @ self.mixing), "decoy": changes.pop("decoy")}
        at_queries = {"distractors": torch.tanh(own_q @ self.mixing), "decoy_f": changes.pop("decoy_f")}
        at_queries["f"] = changes.pop("f")
        at_examples |= changes
        out = h.clone()
        out[:, examples] = he + self._moved(he, at_examples)
        out[:, queries] = hq + self._moved(hq, at_queries)
        return out

    def _moved(self, h: Tensor, features: dict[str, Tensor]) -> Tensor:
        parts = [self.frame.write(name, value - self.frame.read(h, name)) for name, value in features.items()]
        return torch.stack(parts).sum(0)

    def _context(self, he: Tensor, hq: Tensor) -> Context:
        e, q = he.shape[1], hq.shape[1]
        one = he.new_ones
        causal = self.mechanism.mask == "causal"
        return Context(
            x=self.frame.read(he, "x"),
            xq=self.frame.read(hq, "x"),
            y=self.frame.read(he, "y"),
            visible=one(e, e).tril() if causal else one(e, e),
            visible_q=one(q, e).tril(-1) if causal else one(q, e),
            kernel=self.task.kernel,
            lam=self.task.lam,
        )

    def _step(self, context: Context, state: Tensor, second: Tensor, f: Tensor) -> dict[str, Tensor]:
        spec = self.mechanism
        v = spec.v * (0.75 if self.index % 2 else 1.35) if spec.kind == "drifting" else spec.v
        name = spec.other if spec.kind == "alternating" and self.index % 2 else spec.solver
        rules = rules_of(name, context, v, self.eta[name])
        if spec.kind == "uneven":
            rules = rules[0], (0.6 if self.index % 2 else 1.3) * rules[1], rules[2]
        changes = self._decoy(context)
        if spec.kind == "readable":
            state, _ = iterate(rules, context.y, spec.form, state, torch.zeros_like(f), self.count)
            if spec.other == "exact":
                return changes | {"state": state, "f": exact(context, spec.v)}
            average = rules_of("boost", context, spec.v * 0.9**self.index)[2]
            return changes | {"state": state, "f": torch.einsum("bqi,bi->bq", average, context.y)}
        if spec.kind == "momentum":
            state, second, f = momentum(rules, context.y, state, second, self.count)
            return changes | {"state": state, "second": second, "f": f}
        if spec.kind == "halves":
            state, second, f = half_step(rules, context.y, state, second, move=self.index % 2 == 1)
            return changes | {"state": state, "second": second, "f": f}
        if spec.kind == "conjugate-gradients":
            w, r, f = conjugate(rules, context.y, self.start + self.count)
            return changes | {"state": w, "second": r, "f": f}
        state, f = iterate(rules, context.y, spec.form, state, f, self.count)
        return changes | {"state": state, "f": f}

    def _decoy(self, context: Context) -> dict[str, Tensor]:
        """A prediction at the queries, a state at the examples: readable after this layer, used by none."""
        spec, zero = self.mechanism, torch.zeros_like(context.y)
        nothing = context.xq.new_zeros(context.xq.shape[:2])
        other = "boost" if spec.decoy == "exact" else spec.decoy
        rules = rules_of(other, context, 1.1 * spec.v)
        w, f = iterate(rules, context.y, "dual", zero, nothing, 2 * (self.index + 1))
        return {"decoy": w, "decoy_f": exact(context, spec.v) if spec.decoy == "exact" else f}


def _common(random: np.random.Generator, mask: str) -> dict[str, Any]:
    layers = int(random.integers(4, 9))
    most = int(random.integers(1, 4))
    sizes = [None, float(np.exp(random.uniform(np.log(0.4), np.log(1.2))))]
    return {
        "mask": mask,
        "size": sizes[int(random.integers(2))],
        "steps": tuple(int(m) for m in random.integers(1, most + 1, layers)),
        "v": float(np.exp(random.uniform(np.log(0.65), np.log(1.5)))),
        "leak": float(random.choice([0.0, 0.0, 0.01, 0.03])),
        "distractors": int(random.integers(2, 10)),
        "width": int(random.integers(32, 96)),
        "seed": int(random.integers(2**31)),
    }


def positives(task: Task, count: int, seed: int) -> Iterator[Mechanism]:
    """`count` networks that take a solver's steps: masks, solvers and forms round-robin, everything else drawn. A
    quarter of those in the dual form take half a step per layer."""
    random = np.random.default_rng((seed, 0))
    cells = [(mask, solver, form) for mask in POSITIVE for solver in POSITIVE[mask] for form in FORMS]
    for index in range(count):
        mask, solver, form = cells[index % len(cells)]
        rivals = [name for name in POSITIVE[mask] if name != solver]
        decoy = str(random.choice(["exact", *rivals]))
        given = _common(random, mask)
        if form == "dual" and random.random() < 0.25:
            given |= {"kind": "halves", "steps": (1,) * int(random.integers(6, 11))}
        yield Mechanism(solver=solver, form=form, decoy=decoy, **given)


def near_misses(task: Task, count: int, seed: int) -> Iterator[Mechanism]:
    """`count` networks of which nothing may be claimed: decoys, near misses, and averages without a kernel."""
    random = np.random.default_rng((seed, 1))
    kinds = [
        ("readable", ""),
        ("readable", "exact"),
        ("alternating", ""),
        ("drifting", ""),
        ("uneven", ""),
        ("momentum", ""),
        ("conjugate-gradients", ""),
        ("solver", "half-preconditioned"),
        ("solver", "mixed"),
        ("solver", "random-attention"),
    ]
    for index in range(count):
        kind, other = kinds[index % len(kinds)]
        mask = "open" if kind == "conjugate-gradients" else ("open", "causal")[(index // len(kinds)) % 2]
        own = list(POSITIVE[mask])
        random.shuffle(own)
        given: dict[str, Any] = _common(random, mask) | {"kind": kind, "form": str(random.choice(FORMS))}
        if kind == "solver":
            yield Mechanism(solver=other, **given)
        elif kind == "alternating":
            yield Mechanism(solver=own[0], other=own[1], **given)
        elif kind in ("momentum", "conjugate-gradients"):
            given["form"] = "dual"
            yield Mechanism(solver=own[0], **given)
        else:
            yield Mechanism(solver=own[0], other=other, **given)
