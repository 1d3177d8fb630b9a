"""The paper's claims that are not numbers, each with the checks our result files allow and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, sqrt

from layerstep.paper.artefact import Data
from layerstep.paper.capacity import twin
from layerstep.paper.panels import LABELS, r2_words
from layerstep.paper.quoted import PROTOCOL, by_chance
from layerstep.paper.runs import LAWS, SEEDS
from layerstep.paper.settings import TITLES
from layerstep.paper.trained import Found
from layerstep.solvers import PAPER_SOLVERS

#: Best-matching steps are called straight from this R² on: the lowest that the paper reports is 0.9275.
STRAIGHT = 0.9
#: An error is called near that of exact kernel ridge regression up to this ratio.
NEAR = 1.25

#: What is seen, and whether it is as claimed; None where another seed might say otherwise.
Check = tuple[str, bool | None]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says and where; `checks` are empty where the models that would tell are not here."""

    where: str
    says: str
    checks: Sequence[Check]

    @property
    def outcome(self) -> str:
        seen = {as_claimed for _, as_claimed in self.checks}
        if seen <= {None}:
            return "cannot be told" if seen else "not tested"
        return "holds" if seen == {True} else "holds in part" if True in seen else "does not hold"


#: Outcomes of several claims.
PLURAL = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
    "cannot be told": "cannot be told",
    "not tested": "not tested",
}


def in_words(claims: Sequence[Claim]) -> str:
    """How many claims hold, and how many do not."""
    counts = Counter(claim.outcome for claim in claims)
    words = {outcome: outcome if counts[outcome] == 1 else PLURAL[outcome] for outcome in PLURAL}
    return ", ".join(f"{counts[outcome]} {words[outcome]}" for outcome in PLURAL if counts[outcome])


def claims(models: Found, data: Mapping[str, Data]) -> list[Claim]:
    """models: the numbers of the trained models, by name; data: those of the artefacts, by name."""
    written: list[tuple[str, str, Callable[[Found, Mapping[str, Data]], Iterator[Check]]]] = [
        ("theorem", "A transformer with softmax attention can carry out preconditioned Richardson iteration, and its "
         "error is bounded.", _construction),
        ("section on alignment", "Layers of a trained transformer follow preconditioned Richardson iteration, on every "
         "law of inputs.", _verdicts),
        ("Figures 1, 4", "Conjugate gradients reach the model's error in fewer steps than it has layers; gradient "
         "descent and Nesterov's method do not reach it in the steps shown.", _curves),
        ("Figures 2b, 3", f"Of the four solvers only Richardson's best-matching steps rise in a straight line (R² of "
         f"{STRAIGHT} or more).", _only),
        ("Figure 2c", f"Richardson's best-matching steps rise in a straight line (R² of {STRAIGHT} or more) on every "
         "law.", _straight),
        ("Figure 5", "Most layers are more similar to Richardson than to the other three solvers.", _similar),
        ("Figure 8", f"Without softmax no solver's best-matching steps are straight (R² of {STRAIGHT} or more) on all "
         "laws, and Richardson's are less straight than with it.", _softmax),
        ("arc-cosine kernel", "With another kernel fewer layers are most similar to Richardson, and its line is less "
         "straight.", _kernel),
        ("Figure 9a", "Neither the error nor the straightness depends on the number of heads.", _heads),
        ("Figure 9b", f"The error falls with the width, to near that of exact kernel ridge regression (up to {NEAR} "
         "times).", _width),
        ("Figures 6, 7", "In models of 24 layers, too, most layers are more similar to Richardson than to the other "
         "solvers.", _depth),
        ("noise", "In prompts of the largest noise the model's error is nearer to that of the ridge encoded in "
         "training than to that of the best ridge.", _encoded),
        ("noise", "In prompts of the largest noise the model's error is below that of the ridge encoded in training, "
         "as if iteration had stopped early.", _early),
    ]  # fmt: skip
    return [Claim(where=where, says=says, checks=list(checks(models, data))) for where, says, checks in written]


def _r2(model: Data, solver: str = "richardson") -> float:
    """How straight a solver's best-matching steps are; 0 where all layers match one step and there is no line."""
    r2 = model["solvers"][solver]["r2"]
    return 0.0 if isnan(r2) else r2


def _straightness(solver: str) -> Callable[[Data], float]:
    return lambda model: _r2(model, solver)


def _r2_words(model: Data, solver: str = "richardson") -> str:
    return r2_words(model["solvers"][solver]["r2"])


def _law(model: Data) -> str:
    return TITLES[model["setting"]] + _length(model["trained_steps"])


def _length(steps: int) -> str:
    """How long a model was trained, where that is shorter than in the paper."""
    return f" ({steps:,} steps)" if steps < PROTOCOL["steps"][1] else ""


def _construction(_: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    if "schemes" in data:
        scheme, error = data["schemes"]["schemes"]["exact-richardson"], data["schemes"]["error"]
        words = (
            f"{scheme['depth']:,} blocks, written down, take its steps and guarantee an error of {scheme['bound']:.2g}"
        )
        yield words, scheme["bound"] <= error
        curve = data["schemes"]["curve"]
        words = f"bounds of a smaller network, computed for {curve['prompts']} prompts, were exceeded"
        yield f"{words} {curve['violations']} times", curve["violations"] == 0
    control = next((found for found in data.get("verdicts", {}).values() if found.get("truth") == "richardson"), None)
    if control:
        words = f"the verdict on a written network that takes its steps: {control['headline']}"
        yield words, control["solver"] == "richardson"


def _verdicts(_: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if found := data.get("verdicts", {}).get(law):
            left = "" if found["U"] is None else f", {found['U']:.0%} unexplained"
            yield f"{TITLES[law]}{_length(found['steps'])}: {found['headline']}{left}", found["solver"] == "richardson"


def _curves(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if law in models and f"trained-{law}" in data:
            floor, layers = models[law]["layer_mse"][-1][-1], _depth_of(models[law])
            solvers = data[f"trained-{law}"]["curves"]["solvers"]
            first = {name: _first_below(solvers[name], floor) for name in PAPER_SOLVERS}
            words = ", ".join(f"{LABELS[name]} {_after(first[name], solvers[name])}" for name in PAPER_SOLVERS)
            early = first["cg"] is not None and first["cg"] < layers
            yield f"{_law(models[law])}: {words}", early and first["gd"] is None and first["nesterov"] is None


def _first_below(solver: Data, floor: float) -> int | None:
    """The first step whose error at the longest context is no larger than `floor`."""
    return next((int(t) for t, mse in zip(solver["steps"], solver["mse"][-1], strict=True) if mse <= floor), None)


def _after(step: int | None, solver: Data) -> str:
    return f"not in {solver['steps'][-1]:.0f}" if step is None else f"after {step}"


def _only(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if model := models.get(law):
            words, agree = [], []
            for solver in PAPER_SOLVERS:
                of, test = _straightness(solver), _above if solver == "richardson" else _below
                reach = f" ± {chance:.2g}" if isfinite(chance := _one(models, of)) else ""
                words.append(f"{LABELS[solver]} {_r2_words(model, solver)}{reach}")
                agree.append(test(model, STRAIGHT, of, models))
            as_claimed = False if False in agree else None if None in agree else True
            yield f"{_law(model)}: {', '.join(words)} (± by the seed)", as_claimed


def _straight(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if model := models.get(law):
            yield (
                f"{_law(model)}: R² {_r2_words(model)}{_moves(_one(models, _r2))}",
                _above(model, STRAIGHT, _r2, models),
            )


def _similar(models: Found, _: Mapping[str, Data], names: Sequence[str] = LAWS) -> Iterator[Check]:
    for name in names:
        if model := models.get(name):
            depth = _depth_of(model)
            words = f"{_law(model)}: {_won(model)} of {depth} layers{_moves(depth * _one(models, _share_won))}"
            yield words, _above(model, 0.5, _share_won, models)


def _above(model: Data, limit: float, of: Callable[[Data], float], models: Found) -> bool | None:
    """Whether `of` is above the limit; None where another seed may lie on its other side."""
    distance = of(model) - limit
    return distance > 0 if abs(distance) > _one(models, of) else None


def _below(model: Data, limit: float, of: Callable[[Data], float], models: Found) -> bool | None:
    above = _above(model, limit, of, models)
    return None if above is None else not above


def _one(models: Found, of: Callable[[Data], float]) -> float:
    """How far one run may lie from what runs have on average: t s, where two differ by up to t s √2."""
    return _by_chance(models, of) / sqrt(2)


def _moves(chance: float) -> str:
    return f"; a seed moves it by up to {chance:.2g}" if isfinite(chance) else "; how far a seed moves it is unknown"


def _depth(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    yield from _similar(models, data, ("sphere-24", "sphere-24-v2"))


def _fair(models: Found, names: Sequence[str], law: str = "sphere") -> list[str]:
    """The default model of a law, and before it those of `names` that were trained as long; none where one of the two
    is missing."""
    usual = twin(models, names, law)
    alike = [name for name in names if {name, usual} <= set(models) and _steps(models, name) == _steps(models, usual)]
    return [*alike, usual] if alike else []


def _steps(models: Found, name: str) -> int:
    return models[name]["trained_steps"]


def _less(words: str, a: Data, b: Data, of: Callable[[Data], float], models: Found) -> Check:
    """Whether `of` is smaller for a than for b; None where two seeds may differ as much."""
    difference, chance = of(b) - of(a), _by_chance(models, of)
    return words + _seeds(chance), difference > 0 if abs(difference) > chance else None


def _by_chance(models: Found, of: Callable[[Data], float], comparisons: int = 1) -> float:
    return by_chance([of(models[name]) for name in SEEDS if name in models], comparisons)


def _seeds(chance: float, comparisons: int = 1) -> str:
    if not isfinite(chance):
        return "; how far two seeds differ is unknown"
    return f"; two seeds differ by up to {chance:.3g}" + (f" in {comparisons} comparisons" if comparisons > 1 else "")


def _softmax(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    without = {law: models[f"linear-{law}"] for law in LAWS if f"linear-{law}" in models}
    if len(without) < len(LAWS):
        return
    lowest = {solver: min(_r2(model, solver) for model in without.values()) for solver in PAPER_SOLVERS}
    best = max(lowest, key=lambda solver: lowest[solver])
    of = _straightness(best)
    words = f"straightest on all laws: {LABELS[best]}, R² {lowest[best]:.3f} or more{_moves(_one(models, of))}"
    yield words, _below(min(without.values(), key=of), STRAIGHT, of, models)
    for law, model in without.items():
        if there := _fair(models, [f"linear-{law}"], law):
            usual = models[there[-1]]
            words = f"{_law(model)}: Richardson R² {_r2_words(model)} without softmax, {_r2_words(usual)} with"
            yield _less(words, model, usual, _r2, models)


def _kernel(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    if there := _fair(models, ["arccos1"]):
        other, usual = (models[name] for name in there)
        length = _length(other["trained_steps"])
        words = f"{_won(other)} layers, {_won(usual)} with the Gaussian kernel{length}"
        yield _less(words, other, usual, _won, models)
        words = f"R² {_r2_words(other)}, {_r2_words(usual)} with the Gaussian kernel{length}"
        yield _less(words, other, usual, _r2, models)


def _won(model: Data) -> int:
    return model["won"]["richardson"]


def _depth_of(model: Data) -> int:
    return len(model["layers"]) - 1


def _share_won(model: Data) -> float:
    return _won(model) / _depth_of(model)


def _over_krr(model: Data) -> float:
    return model["over_krr"]


def _over_words(model: Data) -> str:
    return f"{model['over_krr']:.3f}"


def _heads(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    there = _fair(models, ("heads-1", "heads-2", "heads-4"))
    if not there:
        return
    *names, usual = there
    heads = ", ".join(name.removeprefix("heads-") for name in names)
    length = _length(_steps(models, usual))
    for what, of, shown in (("error over exact KRR", _over_krr, _over_words), ("R²", _r2, _r2_words)):
        chance = _by_chance(models, of, comparisons=len(names))
        differs = any(abs(of(models[name]) - of(models[usual])) > chance for name in names)
        words = f"{what} with {heads} and 8 heads{length}: {', '.join(shown(models[name]) for name in there)}"
        yield words + _seeds(chance, len(names)), False if differs else None


def _width(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    names = {f"width-{width}": width for width in (32, 64, 128, 512)}
    there = {names.get(name, 256): models[name] for name in _fair(models, list(names))}
    if min(there, default=256) == 256:
        return
    small, *_rest, large = [there[width] for width in sorted(there)]
    widths = ", ".join(map(str, sorted(there))) + _length(large["trained_steps"])
    ratios = ", ".join(_over_words(there[width]) for width in sorted(there))
    yield _less(f"times exact KRR at widths {widths}: {ratios}", large, small, _over_krr, models)
    words = f"{_over_words(large)} times at the largest{_moves(_one(models, _over_krr))}"
    yield words, _below(large, NEAR, _over_krr, models)


def _noise(models: Found, data: Mapping[str, Data]) -> Iterator[tuple[str, float, float]]:
    """By law, at the largest noise: the model's error over that with the ridge of training, and with the best one."""
    laws = data.get("noise-trained", {}).get("laws", {})
    for law in LAWS:
        if law in laws and law in models:
            yield _law(models[law]), laws[law]["TF/EO"]["value"][-1], laws[law]["TF/BO"]["value"][-1]


def _encoded(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for law, encoded, best in _noise(models, data):
        nearer = max(encoded, 1 / encoded) < max(best, 1 / best)
        yield f"{law}: {encoded:.2f} times that of the encoded ridge, {best:.2f} times that of the best", nearer


def _early(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for law, encoded, _best in _noise(models, data):
        yield f"{law}: {encoded:.3f} times", encoded < 1
