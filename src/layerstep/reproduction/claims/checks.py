"""The checks behind the paper's claims: what a model's numbers show, and whether that is as claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite, log, nan

import torch

from layerstep.measurement.similarity import line_r2
from layerstep.reproduction.claims.check import (
    Check,
    above,
    below,
    by_inputs,
    every,
    length_words,
    less,
    limited,
    linearity,
    moves,
    one_run,
    over_krr,
    r2_of,
    share_won,
    title_of,
    two_runs,
)
from layerstep.reproduction.numbers import (
    DEEP,
    DISTRIBUTIONS,
    SEEDS,
    SIGMA_TEST,
    SOLVER_LABELS,
    SPHERE,
    TITLES,
    ModelNoise,
    ModelNumbers,
    Models,
    Numbers,
    Ratio,
    human_name,
    r2_text,
    twin,
)

#: Best-matching steps are called linear from this R² on: the lowest that the paper reports is 0.9275.
LINEAR = 0.9
#: An error is called near that of exact kernel ridge regression up to this ratio.
NEAR = 1.25
#: An effect on the error is called little up to this part of it.
LITTLE = 0.1
#: The paper's model has errors above those of the encoded ridge up to this noise in the prompt, and below them beyond.
CROSSING = 0.1
#: An error is said to rise in a step from this part of it on, and to oscillate when it rises more than once.
RISE = 0.05
#: Rounding of read-outs against iterates, in float64.
ROUNDING = 1e-9

# Constructed transformers, solvers, verdicts --------------------------------------------------------------------------


def construction(numbers: Numbers) -> Iterator[Check]:
    if schemes := numbers.schemes:
        size = schemes.sizes["exact-richardson"]
        seen = f"{size.depth:,} blocks take its steps and guarantee an error of {size.bound:.2g}"
        supported = size.bound <= schemes.error
        yield Check(of="constructed", seen=seen, supported=supported, value=size.bound, limit=schemes.error)
        apart = schemes.richardson_difference
        seen = f"the read-outs of one differ from the iterates of the solver by up to {apart:.0e}"
        seen += f" in {schemes.richardson_steps} steps"
        yield Check(of="constructed", seen=seen, supported=apart < ROUNDING, value=apart, limit=ROUNDING)
    control = next((each for each in numbers.verdicts.values() if each.truth == "richardson"), None)
    if control:
        seen = f"the verdict on one that takes its steps: {control.headline}"
        yield Check(of="constructed", seen=seen, supported=control.solver == "richardson")


def identified(numbers: Numbers) -> Iterator[Check]:
    for name in DISTRIBUTIONS:
        if found := numbers.verdicts.get(name):
            seen = found.headline if found.solver else f"{found.status}: {found.reason}"
            title = TITLES[name] + length_words(found.trained_steps or 0)
            yield Check(of=title, seen=seen, supported=found.solver == "richardson")


def oscillates(numbers: Numbers) -> Iterator[Check]:
    for name, errors in numbers.cg_precision.curves.items() if numbers.cg_precision else ():
        rises = [after / before - 1 for before, after in pairwise(errors) if after > (1 + RISE) * before]
        largest = f", by up to {max(rises):.0%}" if rises else ""
        seen = f"it rises in {len(rises)} of {len(errors) - 1} steps{largest}"
        yield Check(of=name, seen=seen, supported=len(rises) > 1, value=len(rises), limit=1)


# Errors by layer ------------------------------------------------------------------------------------------------------


def curves(numbers: Numbers) -> Iterator[Check]:
    for model in by_inputs(numbers.models):
        if found := numbers.curves_beside(model):
            floor = model.layer_mse[-1][-1]
            first = {name: _first_below(curve.steps, curve.mse[-1], floor) for name, curve in found.solvers.items()}
            ends = {name: f"not in {curve.steps[-1]:.0f}" for name, curve in found.solvers.items()}
            words = {name: ends[name] if step is None else f"after {step}" for name, step in first.items()}
            seen = ", ".join(f"{label} {words[name]}" for name, label in SOLVER_LABELS.items())
            cg, gd, nesterov = (first[name] for name in ("cg", "gd", "nesterov"))
            supported = cg is not None and cg < model.depth and gd is None and nesterov is None
            yield Check(of=title_of(model), seen=seen, supported=supported)


def _first_below(steps: Sequence[float], errors: Sequence[float], floor: float) -> int | None:
    """The first step whose error is at most `floor`."""
    return next((int(step) for step, error in zip(steps, errors, strict=True) if error <= floor), None)


def smooth(numbers: Numbers) -> Iterator[Check]:
    for model in by_inputs(numbers.models):
        logs = [log(mse) for mse in model.layer_mse[-1]]
        falls = [before - after for before, after in pairwise(logs)]
        count, whole = sum(fall > 0 for fall in falls), logs[0] - logs[-1]
        share = max(falls) / whole if whole > 0 else nan
        seen = f"falls in {count} of {len(falls)} layers"
        seen += f", in one by {share:.0%} of the way (logarithms)" if whole > 0 else ""
        supported = count == len(falls) and max(falls) <= whole / 3
        yield Check(of=title_of(model), seen=seen, supported=supported, value=share, limit=1 / 3)


# Best-matching steps and similarity -----------------------------------------------------------------------------------


def _readings(models: Models, names: Sequence[str] = DISTRIBUTIONS) -> Iterator[tuple[str, ModelNumbers, Models]]:
    """Models in words, their numbers and those of the seeds; once more where probes of the last x token read them, too.

    Two seeds may be alike by accident: where fewer than three have been read by the same probes, none are given.
    """
    seeds = {name: models[name] for name in SEEDS if name in models}
    last = {name: read for name, seed in seeds.items() if (read := seed.by_last_token())}
    for name in names:
        if model := models.get(name):
            yield title_of(model), model, seeds
            if read := model.by_last_token():
                yield f"{title_of(model)}, probes of the last token", read, last if len(last) > 2 else {}


def only(numbers: Numbers) -> Iterator[Check]:
    for title, model, seeds in _readings(numbers.models):
        words, agree = [], []
        for solver, label in SOLVER_LABELS.items():
            of, test = linearity(solver), above if solver == "richardson" else below
            reach = f" ± {chance:.2g}" if isfinite(chance := one_run(seeds, of)) else ""
            words.append(f"{label} {model.solvers[solver].r2_text}{reach}")
            agree.append(test(of(model), LINEAR, chance))
        chance = one_run(seeds, r2_of)
        known = "± by the seed" if isfinite(chance) else "how far a seed moves them is unknown"
        seen = f"{', '.join(words)} ({known})"
        yield Check(of=title, seen=seen, supported=every(agree), value=r2_of(model), limit=LINEAR, chance=chance)


def linear(numbers: Numbers) -> Iterator[Check]:
    for title, model, seeds in _readings(numbers.models):
        chance = one_run(seeds, r2_of)
        yield limited(title, f"R² {model.richardson.r2_text}", r2_of(model), LINEAR, chance)


def similar(numbers: Numbers, names: Sequence[str] = DISTRIBUTIONS) -> Iterator[Check]:
    for title, model, seeds in _readings(numbers.models, names):
        others = {solver: count for solver, count in model.alignment.won.items() if count and solver != "richardson"}
        next_best = max(others, key=lambda solver: others[solver], default=None)
        beside = f" ({SOLVER_LABELS[next_best]} {others[next_best]})" if next_best else ""
        chance = one_run(seeds, share_won)
        seen = f"{model.won} of {model.depth} layers{beside}{moves(model.depth * chance)}"
        if {seed.depth for seed in seeds.values()} - {model.depth}:
            seen += " if the share moves as in models of another depth"
        share = model.share_won
        yield Check(of=title, seen=seen, supported=above(share, 0.5, chance), value=share, limit=0.5, chance=chance)


def depth(numbers: Numbers) -> Iterator[Check]:
    yield from similar(numbers, DEEP)


def early_line(numbers: Numbers) -> Iterator[Check]:
    """How linear steps are in the first half of deep models; a seed is taken to move that as it moves whole ones."""
    chance = one_run(numbers.models, r2_of)
    for model in (numbers.models[name] for name in DEEP if name in numbers.models):
        half, steps = model.depth // 2, model.richardson.mean
        layers, means = (torch.tensor(each, dtype=torch.float64) for each in (range(2, half + 1), steps[1:half]))
        r2 = float(line_r2(layers, means[None]))
        flat = next((layer for layer, step in enumerate(steps) if step >= 2), len(steps))
        seen = f"R² {r2:.3f} in layers 2 to {half} ({model.richardson.r2_text} in all)"
        seen += f"; up to layer {flat} the best-matching step is below 2"
        yield limited(title_of(model), seen, r2, LINEAR, chance)


# Model against model --------------------------------------------------------------------------------------------------


def softmax(numbers: Numbers) -> Iterator[Check]:
    kinds = {"linear": "without softmax", "linear-mean": "averaged without softmax"}
    checks = [check for kind, words in kinds.items() for check in _without_softmax(numbers.models, kind, words)]
    yield from {check.sentence: check for check in checks}.values()


def _without_softmax(models: Models, kind: str, words: str) -> Iterator[Check]:
    without = {name: models[f"{kind}-{name}"] for name in DISTRIBUTIONS if f"{kind}-{name}" in models}
    if len(without) < len(DISTRIBUTIONS):
        return
    usual = {name: models[there[-1]] for name in DISTRIBUTIONS if (there := _fair(models, [f"{kind}-{name}"], name))}
    if len(usual) == len(DISTRIBUTIONS):
        check = _most_linear(list(without.values()), models, words)
        yield _negated(check)
        yield _most_linear(list(usual.values()), models, "with softmax, trained as long")
    for name, with_it in usual.items():
        model = without[name]
        seen = f"Richardson R² {model.richardson.r2_text} {words}, {with_it.richardson.r2_text} with it"
        yield less(title_of(model), seen, model, with_it, r2_of, models)


def _most_linear(of: Sequence[ModelNumbers], models: Models, words: str) -> Check:
    """Whether the solver whose lowest R² over some models is largest has linear steps in all of them."""
    solver = max(SOLVER_LABELS, key=lambda each: min(map(linearity(each), of)))
    r2 = linearity(solver)
    lowest, chance = min(map(r2, of)), one_run(models, r2)
    seen = f"{SOLVER_LABELS[solver]}, R² {lowest:.3f} or more"
    title, supported = f"most linear on all input distributions {words}", above(lowest, LINEAR, chance)
    return Check(of=title, seen=seen, supported=supported, value=lowest, limit=LINEAR, chance=chance)


def _negated(check: Check) -> Check:
    return replace(check, supported=None if check.supported is None else not check.supported)


def kernel(numbers: Numbers) -> Iterator[Check]:
    models = numbers.models
    if there := _fair(models, ["arccos1"]):
        other, usual = (models[name] for name in there)
        length = length_words(other.trained_steps)
        seen = f"{other.won} layers, {usual.won} with the Gaussian kernel{length}"
        yield less("", seen, other, usual, lambda model: model.won, models)
        seen = f"R² {other.richardson.r2_text}, {usual.richardson.r2_text} with the Gaussian kernel{length}"
        yield less("", seen, other, usual, r2_of, models)


def heads(numbers: Numbers) -> Iterator[Check]:
    models = numbers.models
    there = [models[name] for name in _fair(models, ("heads-1", "heads-2", "heads-4"))]
    if not there:
        return
    *others, usual = there
    counts = ", ".join(model.name.removeprefix("heads-") for model in others)
    with_heads = f"with {counts} and 8 heads{length_words(usual.trained_steps)}"
    errors = [model.over_krr for model in there]
    lowest = min(errors)
    apart, chance = max(errors) / lowest - 1, two_runs(models, over_krr, comparisons=len(others)) / lowest
    seeds = f"differ by up to {chance:.0%} by chance" if isfinite(chance) else "differ by an unknown part"
    seen = f"{', '.join(map(r2_text, errors))}: {apart:.0%} apart; seeds {seeds}"
    title, supported = f"error over exact KRR {with_heads}", below(apart, LITTLE, chance)
    yield Check(of=title, seen=seen, supported=supported, value=apart, limit=LITTLE, chance=chance)
    chance = one_run(models, r2_of)
    seen = ", ".join(model.richardson.r2_text for model in there) + moves(chance)
    values = list(map(r2_of, there))
    supported = every([above(value, LINEAR, chance) for value in values])
    yield Check(of=f"R² {with_heads}", seen=seen, supported=supported, value=min(values), limit=LINEAR, chance=chance)


def width(numbers: Numbers) -> Iterator[Check]:
    models = numbers.models
    names = {f"width-{width}": width for width in (32, 64, 128, 512)}
    there = {names.get(name, 256): models[name] for name in _fair(models, list(names))}
    if min(there, default=256) == 256:
        return
    small, *_rest, large = [there[width] for width in sorted(there)]
    title = f"times exact KRR at widths {', '.join(map(str, sorted(there)))}{length_words(large.trained_steps)}"
    ratios = ", ".join(r2_text(there[width].over_krr) for width in sorted(there))
    yield less(title, ratios, large, small, over_krr, models)
    chance, value = one_run(models, over_krr), large.over_krr
    seen, supported = f"{r2_text(value)} times at the largest{moves(chance)}", below(value, NEAR, chance)
    yield Check(of="", seen=seen, supported=supported, value=value, limit=NEAR, chance=chance)


def _fair(models: Models, names: Sequence[str], setting: str = "sphere") -> list[str]:
    """The default model of a setting, and before it those of `names` that were trained as long; none where one of the
    two is missing."""
    usual = twin(models, names, setting)
    alike = [name for name in names if {name, usual} <= set(models)]
    alike = [name for name in alike if models[name].trained_steps == models[usual].trained_steps]
    return [*alike, usual] if alike else []


# Noise ----------------------------------------------------------------------------------------------------------------


def _noise(numbers: Numbers) -> Iterator[tuple[str, ModelNoise]]:
    """By model of the noise table and, on the sphere, by seed."""
    for name, noise in numbers.model_noise.items():
        if model := numbers.models.get(name):
            yield human_name(name) if name in SEEDS else title_of(model), noise


def _above_one(ratio: Ratio) -> list[bool | None]:
    """Whether a ratio is above 1, level by level; None where that is within two standard errors."""
    parts = zip(ratio.value, ratio.standard_error, strict=True)
    return [above(value, 1, 2 * error) for value, error in parts]


def encoded(numbers: Numbers) -> Iterator[Check]:
    for title, noise in _noise(numbers):
        value, best = noise.over_encoded.value[-1], noise.over_optimal.value[-1]
        seen = f"{value:.2f} times that of the encoded ridge, {best:.2f} times that of the best"
        apart, limit = max(value, 1 / value), max(best, 1 / best)
        yield Check(of=title, seen=seen, supported=apart < limit, value=apart, limit=limit)


def early(numbers: Numbers) -> Iterator[Check]:
    for title, noise in _noise(numbers):
        levels = zip(_above_one(noise.over_encoded), SIGMA_TEST, strict=True)
        right = [None if each is None else each == (sigma <= CROSSING) for each, sigma in levels]
        seen = f"at {right.count(True)} of {len(right)} levels"
        seen += f" ({right.count(None)} inconclusive)" if None in right else ""
        seen += f"; {noise.over_encoded.value[-1]:.2f} times at the largest"
        sides = {sigma <= CROSSING for each, sigma in zip(right, SIGMA_TEST, strict=True) if each}
        supported = False if False in right else True if len(sides) == 2 else None  # near the crossing all may be None
        yield Check(of=title, seen=seen, supported=supported, value=right.count(True), limit=len(right))


def above_best(numbers: Numbers) -> Iterator[Check]:
    others = [level for level, sigma in enumerate(SIGMA_TEST) if sigma != SPHERE.sigma]
    for title, noise in _noise(numbers):
        over_one, values = _above_one(noise.over_optimal), [noise.over_optimal.value[level] for level in others]
        seen, supported = f"{min(values):.3f} to {max(values):.3f} times", every([over_one[level] for level in others])
        yield Check(of=title, seen=seen, supported=supported, value=min(values), limit=1)
