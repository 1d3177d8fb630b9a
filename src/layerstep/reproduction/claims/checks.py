"""The checks behind the paper's claims: what a model's numbers show, and whether that is as claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite, isnan, log, sqrt

import torch

from layerstep.measurement.similarity import line_r2
from layerstep.reproduction.figures.capacity import twin
from layerstep.reproduction.figures.panels import LABELS, r2_words
from layerstep.reproduction.figures.trained import Found
from layerstep.reproduction.reference import PROTOCOL, by_chance
from layerstep.reproduction.result import Data
from layerstep.reproduction.runs import DEEP, LAWS, SEEDS
from layerstep.reproduction.settings import SETTINGS, TITLES
from layerstep.solvers import PAPER_SOLVERS

#: Best-matching steps are called straight from this R² on: the lowest that the paper reports is 0.9275.
STRAIGHT = 0.9
#: An error is called near that of exact kernel ridge regression up to this ratio.
NEAR = 1.25
#: An effect on the error is called little up to this part of it.
LITTLE = 0.1
#: The paper's model has errors above those of the encoded ridge up to this noise in the prompt, and below them beyond.
CROSSING = 0.1

#: An error is said to rise in a step from this part of it on, and to oscillate when it rises more than once.
RISE = 0.05

#: What is seen, and whether it is as claimed; None where another seed or other prompts might say otherwise.
Check = tuple[str, bool | None]


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


def construction(_: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    if "schemes" in data:
        scheme, error = data["schemes"]["schemes"]["exact-richardson"], data["schemes"]["error"]
        words = (
            f"{scheme['depth']:,} blocks, written down, take its steps and guarantee an error of {scheme['bound']:.2g}"
        )
        yield words, scheme["bound"] <= error
        beside = data["schemes"]["richardson"]
        words = f"the read-outs of one differ from the iterates of the solver by up to {beside['difference']:.0e}"
        yield f"{words} in {beside['steps']} steps", beside["difference"] < 1e-9
    control = next((found for found in data.get("verdicts", {}).values() if found.get("truth") == "richardson"), None)
    if control:
        words = f"the verdict on a written network that takes its steps: {control['headline']}"
        yield words, control["solver"] == "richardson"


def verdicts(_: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if found := data.get("verdicts", {}).get(law):
            words = found["headline"] if found["solver"] else f"{found['answer']}: {found['reason']}"
            yield f"{TITLES[law]}{_length(found['steps'])}: {words}", found["solver"] == "richardson"


def curves(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
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


def smooth(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    for law in LAWS:
        if model := models.get(law):
            logs = [log(mse) for mse in model["layer_mse"][-1]]
            falls = [before - after for before, after in pairwise(logs)]
            count, all_of_it = sum(fall > 0 for fall in falls), logs[0] - logs[-1]
            words = f"falls in {count} of {len(falls)} layers"
            if all_of_it > 0:
                words += f", in one by {max(falls) / all_of_it:.0%} of the way (logarithms)"
            yield f"{_law(model)}: {words}", count == len(falls) and max(falls) <= all_of_it / 3


def oscillates(_: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for name, errors in data.get("cg-precision", {}).get("curves", {}).items():
        rises = [after / before - 1 for before, after in pairwise(errors) if after > (1 + RISE) * before]
        largest = f", by up to {max(rises):.0%}" if rises else ""
        yield f"{name}: it rises in {len(rises)} of {len(errors) - 1} steps{largest}", len(rises) > 1


def _readings(models: Found, names: Sequence[str] = LAWS) -> Iterator[tuple[str, Data, Found]]:
    """Models in words, their numbers and those of the seeds; once more where probes of the last x token read them, too.

    Two seeds may be alike by accident: where fewer than three have been read by the same probes, none are given.
    """
    seeds = {name: models[name] for name in SEEDS if name in models}
    last = {name: {**seed, **seed["last"]} for name, seed in seeds.items() if "last" in seed}
    for name in names:
        if model := models.get(name):
            yield _law(model), model, seeds
            if "last" in model:
                same = last if len(last) > 2 else {}
                yield f"{_law(model)}, probes of the last token", {**model, **model["last"]}, same


def only(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    for name, model, seeds in _readings(models):
        words, agree = [], []
        for solver in PAPER_SOLVERS:
            of, test = _straightness(solver), _above if solver == "richardson" else _below
            reach = f" ± {chance:.2g}" if isfinite(chance := _one(seeds, of)) else ""
            words.append(f"{LABELS[solver]} {_r2_words(model, solver)}{reach}")
            agree.append(test(model, STRAIGHT, of, seeds))
        known = "± by the seed" if isfinite(_one(seeds, _r2)) else "how far a seed moves them is unknown"
        yield f"{name}: {', '.join(words)} ({known})", _all(agree)


def straight(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    for name, model, seeds in _readings(models):
        yield f"{name}: R² {_r2_words(model)}{_moves(_one(seeds, _r2))}", _above(model, STRAIGHT, _r2, seeds)


def similar(models: Found, _: Mapping[str, Data], names: Sequence[str] = LAWS) -> Iterator[Check]:
    for name, model, seeds in _readings(models, names):
        depth = _depth_of(model)
        others = {solver: count for solver, count in model["won"].items() if count and solver != "richardson"}
        next_best = max(others, key=lambda solver: others[solver], default=None)
        beside = f" ({LABELS[next_best]} {others[next_best]})" if next_best else ""
        moves = _moves(depth * _one(seeds, _share_won))
        if {_depth_of(seed) for seed in seeds.values()} - {depth}:
            moves += " if the share moves as in models of another depth"
        yield f"{name}: {_won(model)} of {depth} layers{beside}{moves}", _above(model, 0.5, _share_won, seeds)


def _above(model: Data, limit: float, of: Callable[[Data], float], models: Found) -> bool | None:
    """Whether `of` is above the limit; None where another seed may lie on its other side."""
    distance = of(model) - limit
    return distance > 0 if abs(distance) > _one(models, of) else None


def _below(model: Data, limit: float, of: Callable[[Data], float], models: Found) -> bool | None:
    above = _above(model, limit, of, models)
    return None if above is None else not above


def _all(told: Sequence[bool | None]) -> bool | None:
    """Whether all are true: one that is not decides, else one that cannot be told."""
    return False if False in told else None if None in told else True


def _one(models: Found, of: Callable[[Data], float]) -> float:
    """How far one run may lie from what runs have on average: t s, where two differ by up to t s √2."""
    return _by_chance(models, of) / sqrt(2)


def _moves(chance: float) -> str:
    return f"; a seed moves it by up to {chance:.3g}" if isfinite(chance) else "; how far a seed moves it is unknown"


def depth(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    yield from similar(models, data, DEEP)


def early_line(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    """How straight lines are in the first half of deep models; a seed is taken to move that as it moves whole ones."""
    chance = _one(models, _r2)
    for name in DEEP:
        if model := models.get(name):
            half, steps = _depth_of(model) // 2, model["solvers"]["richardson"]["mean"]
            layers, means = (torch.tensor(each, dtype=torch.float64) for each in (range(2, half + 1), steps[1:half]))
            r2 = float(line_r2(layers, means[None]))
            one = next((layer for layer, step in enumerate(steps) if step >= 2), len(steps))
            words = f"{_law(model)}: R² {r2:.3f} in layers 2 to {half} ({_r2_words(model)} in all)"
            words += f"; up to layer {one} the best-matching step is below 2{_moves(chance)}"
            yield words, r2 > STRAIGHT if abs(r2 - STRAIGHT) > chance else None


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


def _percent(chance: float) -> str:
    return f"differ by up to {chance:.0%} by chance" if isfinite(chance) else "differ by an unknown part"


def _seeds(chance: float) -> str:
    return f"; two seeds differ by up to {chance:.3g}" if isfinite(chance) else "; how far two seeds differ is unknown"


def softmax(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    kinds = {"linear": "without softmax", "linear-mean": "averaged without softmax"}
    yield from dict.fromkeys(check for kind, words in kinds.items() for check in _without_softmax(models, kind, words))


def _without_softmax(models: Found, kind: str, words: str) -> Iterator[Check]:
    without = {law: models[f"{kind}-{law}"] for law in LAWS if f"{kind}-{law}" in models}
    if len(without) < len(LAWS):
        return
    usual = {law: models[there[-1]] for law in LAWS if (there := _fair(models, [f"{kind}-{law}"], law))}
    if len(usual) == len(LAWS):
        solver, found = _straightest(list(without.values()), models)
        yield f"straightest on all laws {words}: {solver}", None if found is None else not found
        solver, found = _straightest(list(usual.values()), models)
        yield f"straightest on all laws with softmax, trained as long: {solver}", found
    for law, with_it in usual.items():
        model = without[law]
        seen = f"{_law(model)}: Richardson R² {_r2_words(model)} {words}, {_r2_words(with_it)} with it"
        yield _less(seen, model, with_it, _r2, models)


def _straightest(of: Sequence[Data], models: Found) -> tuple[str, bool | None]:
    """The solver whose lowest R² over some models is largest, in words, and whether that is straight."""
    solver = max(PAPER_SOLVERS, key=lambda each: min(_r2(model, each) for model in of))
    r2 = _straightness(solver)
    worst = min(of, key=r2)
    return f"{LABELS[solver]}, R² {r2(worst):.3f} or more", _above(worst, STRAIGHT, r2, models)


def kernel(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
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


def heads(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
    there = _fair(models, ("heads-1", "heads-2", "heads-4"))
    if not there:
        return
    *names, usual = there
    heads = ", ".join(name.removeprefix("heads-") for name in names)
    length = _length(_steps(models, usual))
    errors = [_over_krr(models[name]) for name in there]
    apart, chance = max(errors) / min(errors) - 1, _by_chance(models, _over_krr, comparisons=len(names)) / min(errors)
    shown = ", ".join(_over_words(models[name]) for name in there)
    words = f"error over exact KRR with {heads} and 8 heads{length}: {shown}"
    told = apart <= LITTLE if abs(apart - LITTLE) > chance else None
    yield f"{words}: {apart:.0%} apart; seeds {_percent(chance)}", told
    straight = [_above(models[name], STRAIGHT, _r2, models) for name in there]
    words = f"R² with {heads} and 8 heads{length}: {', '.join(_r2_words(models[name]) for name in there)}"
    yield words + _moves(_one(models, _r2)), _all(straight)


def width(models: Found, _: Mapping[str, Data]) -> Iterator[Check]:
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


def _noise(models: Found, data: Mapping[str, Data]) -> Iterator[tuple[str, Data, Data]]:
    """By law and, on the sphere, by seed: the model's error at every level of noise over that with the ridge of
    training, and with the best one."""
    found = data.get("noise-trained", {})
    for law, ratios in found.get("laws", {}).items():
        if law in models:
            yield _law(models[law]), ratios["TF/EO"], ratios["TF/BO"]
    for name, ratios in found.get("seeds", {}).items():
        if name in models:
            yield f"{name}{_length(_steps(models, name))}", ratios["TF/EO"], ratios["TF/BO"]


def _above_one(ratios: Data) -> list[bool | None]:
    """Whether a ratio is above 1, level by level; None where that is within two standard errors."""
    parts = zip(ratios["value"], ratios["standard_error"], strict=True)
    return [value > 1 if abs(value - 1) > 2 * error else None for value, error in parts]


def encoded(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for name, to_encoded, to_best in _noise(models, data):
        encoded, best = to_encoded["value"][-1], to_best["value"][-1]
        words = f"{name}: {encoded:.2f} times that of the encoded ridge, {best:.2f} times that of the best"
        yield words, max(encoded, 1 / encoded) < max(best, 1 / best)


def early(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    for name, encoded, _best in _noise(models, data):
        levels = data["noise-trained"]["sigma_test"]
        above = zip(_above_one(encoded), levels, strict=True)
        right = [None if each is None else each == (sigma <= CROSSING) for each, sigma in above]
        words = f"{name}: at {right.count(True)} of {len(levels)} levels"
        words += f" ({right.count(None)} cannot be told)" if None in right else ""
        sides = {sigma <= CROSSING for each, sigma in zip(right, levels, strict=True) if each}
        told = False if False in right else True if len(sides) == 2 else None  # near the crossing nothing can be told
        yield f"{words}; {encoded['value'][-1]:.2f} times at the largest", told


def above_best(models: Found, data: Mapping[str, Data]) -> Iterator[Check]:
    levels = data.get("noise-trained", {}).get("sigma_test", [])
    others = [level for level, sigma in enumerate(levels) if sigma != SETTINGS["sphere"].sigma]
    for name, _encoded, best in _noise(models, data):
        ratios, above = [best["value"][level] for level in others], _above_one(best)
        yield f"{name}: {min(ratios):.3f} to {max(ratios):.3f} times", _all([above[level] for level in others])
