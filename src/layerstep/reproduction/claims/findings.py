"""What came out, in sentences made from the result files: the first thing the page says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan

from layerstep.measurement.calibration.record import read_record
from layerstep.reproduction.claims.statements import Claim, in_words
from layerstep.reproduction.figures.panels import LABELS
from layerstep.reproduction.figures.trained import mark
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON, Row
from layerstep.reproduction.result import Data
from layerstep.reproduction.settings import TITLES


def findings(data: Mapping[str, Data], claims: Sequence[Claim] = (), rows: Sequence[Row] = ()) -> list[str]:
    """What came out, in sentences made from the result files."""
    sentences = []
    if any(claim.checks for claim in claims):
        sentences.append(
            f"Of {len(claims)} claims of the paper that are not numbers, {in_words(claims)}, in our models."
        )
    if "schemes" in data:
        schemes = data["schemes"]["schemes"]
        compact, exact, paper = (schemes[name] for name in ("compact", "exact-richardson", "paper"))
        sentences.append(
            f"A transformer of {compact['depth']:,} blocks, with MLPs of {compact['width']} units, is guaranteed to "
            f"stay within {data['schemes']['error']:g} of exact kernel ridge regression in the paper's setting (labels "
            f"up to {data['schemes']['B_y']:g}), without training; it takes Chebyshev steps. With the paper's "
            f"Richardson steps it takes {exact['depth']:,} blocks, and the paper's own network needs "
            f"{paper['depth']:,} for the same promise."
        )
    sentences += _on_steps(data)
    verdicts = data.get("verdicts", {})
    trained = {name: found for name, found in verdicts.items() if "truth" not in found}
    if trained:
        named = [f"{name} ({found['solver']})" for name, found in trained.items() if found["solver"]]
        steps = [found["steps"] for found in trained.values()]
        length = f"{min(steps):,}" + (f" to {max(steps):,}" if max(steps) > min(steps) else "")
        limit = read_record()["rule"]["v_limit"]
        nearest = Counter(found["nearest"] for found in trained.values() if found["nearest"])
        sentences.append(
            f"Of {len(trained)} trained transformers ({length} training steps), {len(named) or 'none'} can be said to "
            f"follow a solver of the library{': ' + ', '.join(named) if named else ''}. "
            + " ".join(
                f"The nearest class is {kind} for {count} (for {_apart(trained, kind)} by more than the margin); it "
                f"leaves {_share(trained, kind, 'U')} of their layers' distance to exact kernel ridge regression "
                f"unexplained, {_share(trained, kind, 'V')} with a pattern, where {limit:.1%} is allowed."
                for kind, count in nearest.most_common(2)
            )
        )
    controls = {name: found for name, found in verdicts.items() if "truth" in found}
    if controls:
        answers = "; ".join(f"{name}: {found['headline']}" for name, found in controls.items())
        right = sum(found["solver"] == found["truth"] for found in controls.values())
        others = [found for found in controls.values() if found["truth"] != "richardson"]
        fooled = sum(2 * found["won"] > found["depth"] for found in others)
        sentences.append(
            f"Of {len(controls)} controls whose answer is known the same instrument names {right} rightly ({answers}). "
            f"{len(others)} of them are not Richardson; the paper's metric calls most layers Richardson in {fooled} of "
            "these."
        )
    return sentences + _on_the_gaussian_column(rows)


def _on_the_gaussian_column(rows: Sequence[Row]) -> list[str]:
    """Which spread of Gaussian inputs the paper's numbers on noise are those of."""
    told = [row for row in rows if row.high - row.low > 1e-9]  # not what is 1 by definition
    wide = [row for row in told if TITLES["gaussian-1.0"] in row.quantity]
    stated = [row for row in told if TITLES["gaussian"] in row.quantity]
    fit_wide, fit_stated = (sum(row.outcome == "reproduced" for row in each) for each in (wide, stated))
    if fit_wide <= fit_stated or not stated:
        return []
    return [
        f"The paper's numbers on noise with Gaussian inputs fit s.d. 1.0 ({fit_wide} of {len(wide)} reproduced) better "
        f"than the s.d. 0.6 it states ({fit_stated} of {len(stated)})."
    ]


def _apart(verdicts: Mapping[str, Data], nearest: str) -> int:
    """How many have their nearest class nearer than every other by the margin that a claim would need."""
    limit = read_record()["rule"]["margin_limit"]
    return sum(found["nearest"] == nearest and (found["margin"] or 0) >= limit for found in verdicts.values())


def _share(verdicts: Mapping[str, Data], nearest: str, part: str) -> str:
    left = sorted(found[part] for found in verdicts.values() if found["nearest"] == nearest and found[part] is not None)
    if not left:
        return "an unknown part"
    return f"{left[0]:.0%}" + (f" to {left[-1]:.0%}" if f"{left[-1]:.0%}" != f"{left[0]:.0%}" else "")


def _on_steps(data: Mapping[str, Data]) -> list[str]:
    """Whose best-matching steps are straight, in our model on the sphere and in a written one."""
    sentences = []
    if "steps-sphere" in data:
        model = data["steps-sphere"]["models"]["sphere"]
        sentences.append(
            f"In our model on the sphere ({model['held']}) {_straightness(model)}. Richardson is most "
            f"similar in {model['won']['richardson']} of {len(model['layers']) - 1} layers (paper: "
            f"{LAYERS_WON['sphere']})."
        )
        if last := model.get("last"):
            sentences[-1] += (
                f" Read by probes of the last token alone, {_straightness(last)}; Richardson is most similar in "
                f"{last['won']['richardson']} layers."
            )
    if "written-beside-trained" in data:
        model = data["written-beside-trained"]["written-chebyshev"]
        sentences.append(
            f"A written transformer that takes Chebyshev steps has R² = {model['solvers']['richardson']['r2']:.3f} "
            "against Richardson steps: a straight line alone names no solver. (How similar they are does tell here: "
            f"Richardson is most similar in {model['won']['richardson']} of {len(model['layers']) - 1} layers.)"
        )
    return sentences


def _straightness(model: Data) -> str:
    """How straight the best-matching Richardson steps of a model are, and which solver's are straightest."""
    quoted = BEST_STEP_R2["sphere"]
    r2 = {name: found["r2"] for name, found in model["solvers"].items() if not isnan(found["r2"])}
    words = f"all layers match one Richardson step best, which is no line (paper: R² = {quoted})"
    if "richardson" in r2:
        words = (
            "the Richardson steps that match its layers best fit a straight line with "
            f"R² = {r2['richardson']:.3f} (paper: {quoted})"
        )
    best = max(r2, key=lambda name: r2[name], default=None)
    if best is None:
        return words
    cut = " (cut off by the budget of steps in more than a third of the layers)" if mark(model, best) else ""
    return f"{words}; of the four solvers those of {LABELS[best]} are the straightest, {r2[best]:.3f}{cut}"
