"""All numbers of a report: each computed or found, and those that fail named with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from layerstep.errors import LayerstepError
from layerstep.reproduction.numbers import (
    constructed,
    interventions,
    linear_models,
    measurements,
    noise,
    open_mask,
    planted_paths,
    solvers,
    verdict,
)
from layerstep.reproduction.numbers.model import ModelNumbers
from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.runs import RUNS, SEEDS
from layerstep.reproduction.settings import DISTRIBUTIONS

T = TypeVar("T")

#: Settings whose solver curves are shown beside deep models, and for how many steps.
DEEP_CURVES = {"sphere-24": ("sphere", 500), "sphere-24-v2": ("sphere-v2", 1500)}


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What figures are drawn from and claims are checked against. None or absent: not here, or could not be made."""

    models: dict[str, ModelNumbers] = field(default_factory=dict)
    constructed: dict[str, ModelNumbers] = field(default_factory=dict)
    walk: constructed.Walk | None = None
    schemes: constructed.Schemes | None = None
    curves: dict[str, solvers.SolverCurves] = field(default_factory=dict)  # by setting, or by deep model
    conditioning: dict[str, solvers.Conditioning] = field(default_factory=dict)
    cg_precision: solvers.Precision | None = None
    noise: dict[str, noise.RidgeNoise] = field(default_factory=dict)
    model_noise: dict[str, noise.ModelNoise] = field(default_factory=dict)
    interventions: dict[str, interventions.WrittenInto] = field(default_factory=dict)
    open_mask: dict[str, open_mask.OpenMask] = field(default_factory=dict)
    planted_paths: list[planted_paths.PlantedPath] = field(default_factory=list)
    linear_models: dict[str, linear_models.LinearModel] = field(default_factory=dict)
    verdicts: dict[str, verdict.ModelVerdict] = field(default_factory=dict)

    def curves_beside(self, model: ModelNumbers) -> solvers.SolverCurves | None:
        return self.curves.get(model.name) or self.curves.get(model.setting)


def collect(
    store: Store, names: list[str], failed: dict[str, str], progress: Callable[[str], None] = lambda name: None
) -> Numbers:
    """Everything but verdicts, of the models `names`; reasons of what could not be made are added to `failed`."""

    def attempt(name: str, otherwise: T, make: Callable[..., T], *of: Any) -> T:
        progress(name)
        try:
            return make(store, *of)
        except LayerstepError as error:
            failed[name] = str(error)
            return otherwise

    # One setting's solvers are in memory at a time.
    ordered = sorted(names, key=lambda name: RUNS[name].setting)
    measured = {name: attempt(name, None, measurements.measure, name) for name in ordered}
    models = {name: model for name in RUNS if (model := measured.get(name)) is not None}
    shown = {**{name: (name, solvers.CURVE_STEPS) for name in (*DISTRIBUTIONS, "arccos1")}, **DEEP_CURVES}
    shown = {name: of for name, of in shown.items() if name in (*DISTRIBUTIONS, *models)}
    beside_paper = [name for name in models if name in (*noise.TABLE_SETTINGS, *SEEDS)]
    curve = {name: attempt(f"curves, {name}", None, solvers.solver_curves, *of) for name, of in shown.items()}
    return Numbers(
        models=models,
        constructed=attempt("constructed models", {}, constructed.constructed_models),
        walk=attempt("walk", None, constructed.constructed_walk),
        schemes=attempt("schemes", None, constructed.constructed_schemes),
        curves={name: found for name, found in curve.items() if found},
        conditioning=attempt("conditioning", {}, solvers.conditioning),
        cg_precision=attempt("cg-precision", None, solvers.cg_precision),
        noise=attempt("noise", {}, noise.ridge_noise),
        model_noise=attempt("noise-trained", {}, noise.model_noise, beside_paper),
        interventions=attempt("interventions", {}, lambda _: interventions.written_into()),  # never computed here
        open_mask=open_mask.open_mask_models(),
        planted_paths=attempt("planted paths", [], planted_paths.compare_planted_paths),
        linear_models=linear_models.read_linear_models(),  # never measured here
    )
