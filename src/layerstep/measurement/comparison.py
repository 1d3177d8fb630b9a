"""The paper's metrics and the field's, for all solvers in one table: which steps a path resembles, and how much.

They rank and do not identify: `docs/claims.md` has what they say about planted paths that are something else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from layerstep.errors import as_float, as_path, quoted, require, require_choice, require_kind
from layerstep.files import write_aside
from layerstep.measurement.identification.descriptions import as_json
from layerstep.measurement.identification.domains import at_length, domain_of
from layerstep.measurement.similarity import Match, layers_won, match
from layerstep.solvers import SOLVERS, Solver, solve_all
from layerstep.solvers.system import Batch
from layerstep.tasks import Prompts, Trajectory, require_task

#: One solver's step numbers: with it, or those of its family.
Asked = Sequence[str] | Mapping[str, Any]
QUERIES = 2  # per dimension, at which a model's weights are read off its predictions
WEIGHED = 64  # prompts whose weights are read
SHOWN = 5  # solvers that a figure colours


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Of every solver its `Match` with the path, and where weights were read, cos(θ_l, θ_t) [L, T] over sequences."""

    label: str
    matches: dict[str, Match]
    weights: dict[str, Float[Tensor, "L T"]]
    layers: tuple[float, float]
    left_out: dict[str, str]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Per solver, the most similar first: best SimE and SimW (mean over layers of the best step's), layers won, and
        the line through the mean best steps."""
        won = layers_won(self.matches, first=self.layers[0])
        found = []
        for name, each in self.matches.items():
            inside = self._inside(each)
            slope, r2 = self.line(name)
            weights = self.weights.get(name)
            found.append(
                {
                    "solver": name,
                    "sime": float(each.sime.amax(1)[inside].mean()),
                    "simw": None if weights is None else float(weights.amax(1)[inside].mean()),
                    "layers won": won[name],
                    "slope": slope,
                    "r2": r2,
                    "at cap": float(each.at_cap[inside].mean()),
                }
            )
        return sorted(found, key=lambda row: -row["sime"])

    def line(self, solver: str) -> tuple[float, float]:
        """(slope, R²) of the line through the mean best steps of one solver."""
        found = self.matches[solver]
        return _line(found.layers[self._inside(found)], found.best_step.mean(0)[self._inside(found)])

    def _inside(self, found: Match) -> Bool[Tensor, "L"]:
        return (found.layers >= self.layers[0]) & (found.layers <= self.layers[1])

    def __str__(self) -> str:
        first, last = self.layers
        weights = "   SimW" if self.weights else ""
        lines = [
            f"{self.label}: layers {first:g} to {last:g}; these numbers rank solvers, and name none",
            f"  {'solver':<22} best SimE{weights}  layers won  steps per layer      R2",
        ]
        for row in self.rows:
            simw = "" if not self.weights else f"  {row['simw']:.3f}" if row["simw"] is not None else "      -"
            cap = " +" if row["at cap"] > 0.5 else ""
            lines.append(
                f"  {row['solver']:<22} {row['sime']:10.4f}{simw}  {row['layers won']:10d}  {row['slope']:15.3g}  "
                f"{row['r2']:6.3f}{cap}"
            )
        if any(row["at cap"] > 0.5 for row in self.rows):
            lines.append("  +: most best steps are the last one tried")
        lines += [f"  left out: {name}, {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The table, as JSON values."""
        rows = [{name: each if name == "solver" else as_json(each) for name, each in row.items()} for row in self.rows]
        return {"label": self.label, "layers": list(self.layers), "rows": rows, "left_out": self.left_out}

    def figure(self, file: str | os.PathLike | None = None):
        """Best SimE and mean best step by layer (matplotlib); saved when a file is named."""
        from layerstep import plotting

        with plotting.figure(11, 4.2) as figure:
            similar, steps = figure.subplots(1, 2)
        file = None if file is None else as_path("file", file)
        suffix = (file.suffix if file else "").lstrip(".") or "png"
        require_choice("suffix of file", suffix, figure.canvas.get_supported_filetypes())
        looks = [*plotting.LOOKS[:SHOWN], *([plotting.Look("0.7", "-")] * len(self.matches))]
        for index, (row, look) in enumerate(zip(self.rows, looks, strict=False)):
            each = self.matches[row["solver"]]
            style = {"color": look.color, "ls": look.dash, "lw": 1.6 if index < SHOWN else 0.8, "marker": "o", "ms": 3}
            layers = each.layers.numpy()
            name = row["solver"] if index < SHOWN else None
            similar.plot(layers, 1 - each.sime.amax(1).numpy(), label=name, **style)
            if index < SHOWN:
                steps.plot(layers, each.best_step.mean(0).numpy(), label=f"{name}, R² {row['r2']:.3f}", **style)
        similar.set_yscale("log")
        similar.set(xlabel="layer", ylabel="1 - best SimE")
        similar.legend(fontsize=8)
        steps.set_yscale("symlog", linthresh=1)
        steps.set(xlabel="layer", ylabel="mean best step")
        steps.legend(fontsize=8)
        figure.suptitle(f"{self.label}: similarity to the steps of {len(self.matches)} solvers", fontsize=11)
        if file is not None:
            with write_aside(file) as aside:
                plotting.save(figure, aside, suffix)
        return figure


def compare(
    path: Trajectory,
    prompts: Prompts,
    task: Any,
    solvers: Asked | None = None,
    *,
    layers: tuple[float, float] = (2, 10),
    model_fn: Callable[[Prompts], Trajectory] | None = None,
) -> Comparison:
    """SimE, best steps and their line for every solver, and SimW where the model can be asked again; see `Comparison`.

    solvers: names, or a dictionary of (solver, steps) by name, yours among them; by default all that `identify` asks.
    layers: those that averages and the line are over, all where there are fewer than three among them. model_fn: the
    model as a function from prompts to its trajectory; with it, on linear tasks, weights are read off its predictions
    at other queries after all N examples, and compared with the solvers' (SimW).
    """
    require_kind("path", path, Trajectory, "The order is path, prompts, task.")
    require_kind("prompts", prompts, Prompts, "The order is path, prompts, task.")
    require_task(task, "gram", "lam", remedy="The order is path, prompts, task.")
    task = at_length(task, prompts.N)
    first, last = _ends(layers)
    asked, left_out = _asked(solvers, prompts, task)
    paths = solve_all(asked, prompts, task, contexts=path.contexts.tolist())
    matches = {}
    for name, each in paths.items():
        if bool(each.values.isfinite().all()):
            matches[name] = match(path, each, prompts)
        else:
            left_out[name] = "which diverges on these prompts"
    require(len(matches) > 0, "solvers", ", ".join(asked), "one or more that do not diverge here")
    stages = path.stages
    few = int(((stages >= first) & (stages <= last)).sum()) < 3
    span = (float(stages[0]), float(stages[-1])) if few else (first, last)
    weights: dict[str, Tensor] = {}
    if model_fn is not None:
        linear = domain_of(task).name == "linear"
        require(linear, "model_fn", "given", "left out where the task is not linear: it has no weights to compare")
        some = prompts[:WEIGHED]
        again = {name: asked[name] for name in matches}
        theirs = _weights(lambda given: solve_all(again, given, task, contexts=[given.N]), some)
        ours = _weights(lambda given: {"": model_fn(given)}, some)[""]
        weights = {
            name: torch.einsum("lbd,tbd->lt", _unit(ours), _unit(each)) / some.B for name, each in theirs.items()
        }
    return Comparison(label=path.label, matches=matches, weights=weights, layers=span, left_out=left_out)


def _ends(layers: Any) -> tuple[float, float]:
    """The first and the last of `layers`."""
    ends = [as_float(end) for end in layers] if isinstance(layers, Sequence) else []
    require(len(ends) == 2 and ends[0] <= ends[1], "layers", quoted(layers), "the first and the last, as in (2, 10)")
    return ends[0], ends[1]


def _weights(run: Callable[[Prompts], dict[str, Trajectory]], prompts: Prompts) -> dict[str, Float[Tensor, "L B d"]]:
    """θ with prediction = q · θ after all N examples, by least squares over other queries q."""
    draw = np.random.default_rng(0).standard_normal((QUERIES * prompts.d, prompts.d))
    scale = float(prompts.x.square().mean().sqrt())
    queries = torch.from_numpy(draw).to(prompts.x) * scale
    inverse = torch.linalg.pinv(queries.double())  # [d, Q]
    found: dict[str, Tensor] = {}
    for place, query in enumerate(queries):
        x = torch.cat([prompts.x[:, :-1], query.expand(prompts.B, 1, -1)], dim=1)
        for name, path in run(Prompts(x, prompts.y)).items():
            last = path.values[:, :, path.contexts.tolist().index(prompts.N)].double()
            part = last.unsqueeze(-1) * inverse[:, place]
            found[name] = part if name not in found else found[name] + part
    return found


def _unit(theta: Float[Tensor, "L B d"]) -> Float[Tensor, "L B d"]:
    return theta / theta.norm(dim=-1, keepdim=True).clamp_min(1e-300)


def _asked(
    solvers: Asked | None, prompts: Prompts, task: Any
) -> tuple[dict[str, tuple[Solver, Sequence[float]]], dict[str, str]]:
    """The solvers by name with their steps; and why others are left out."""
    met = Batch.of(prompts, task).meets
    families = {family.name: family for family in domain_of(task).families(task)}
    if solvers is None:
        lacking = {name: f"which needs {' and '.join(sorted(f.needs - met))}" for name, f in families.items()}
        out = {name: why for name, why in lacking.items() if families[name].needs - met}
        return {name: family.on(task) for name, family in families.items() if name not in out}, out
    if isinstance(solvers, Mapping):
        pairs = all(isinstance(each, Sequence) and len(each) == 2 for each in solvers.values())
        require(pairs and len(solvers) > 0, "solvers", quoted(solvers), "a dictionary of (solver, steps) by name")
        return dict(solvers), {}
    named = isinstance(solvers, Sequence) and not isinstance(solvers, str) and len(solvers) > 0
    require(named, "solvers", quoted(solvers), "names, or a dictionary of (solver, steps) by name")
    found = {}
    for name in solvers:
        require_choice("solvers", name, {**families, **SOLVERS})
        found[name] = families[name].on(task) if name in families else (SOLVERS[name], range(101))
    return found, {}


def _line(layers: Float[Tensor, "L"], steps: Float[Tensor, "L"]) -> tuple[float, float]:
    """Slope and R² of the best steps."""
    if len(layers) < 2 or not bool(steps.isfinite().all()) or float(steps.std()) == 0:
        return math.nan, math.nan
    slope, intercept = np.polyfit(layers.numpy(), steps.numpy(), 1)
    left = steps.numpy() - slope * layers.numpy() - intercept
    return float(slope), float(1 - (left**2).sum() / ((steps - steps.mean()) ** 2).sum())
