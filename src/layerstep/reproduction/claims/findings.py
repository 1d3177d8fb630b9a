"""What came out, in sentences made from the numbers: the first thing the page says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from layerstep.reproduction.claims.interventions import Written, in_words, left, probed, span
from layerstep.reproduction.claims.statements import Claim, outcome_counts
from layerstep.reproduction.numbers import SOLVER_LABELS, TITLES, Alignment, ModelVerdict, Numbers, calibrated_rule
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON, Comparison


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A row of the first screen. `place`: the part of the page that shows it."""

    question: str
    answer: str
    evidence: str
    place: str


def in_a_sentence(numbers: Numbers) -> str:
    """The answer to the question of the page."""
    written = ""
    if numbers.schemes:
        written = "A transformer whose layers are steps of a solver can be written down, with a guarantee"
    found = Written.of(numbers)
    seen = ""
    if found is not None and not found.claimed:
        seen = "in those trained on labels none was found: of what their layers make of a state, the nearest solver "
        seen += f"tried misses {span(left(found.models))}"
    elif found is not None:
        seen = f"of {len(found.models)} that were trained and written into, {len(found.claimed)} run a known solver"
    elif models := [verdict for verdict in numbers.verdicts.values() if not verdict.is_control]:
        seen = f"{len(models)} that were trained were read by probes, which cannot show a solver inside"
    if not (written and seen):
        return f"{written or seen[:1].upper() + seen[1:]}." if written or seen else ""
    return f"{written}; {seen}."


def main_answers(numbers: Numbers) -> list[Answer]:
    """The questions of the page with their answers, as far as the numbers are here."""
    rows = []
    if schemes := numbers.schemes:
        compact, paper = schemes.sizes["compact"], schemes.sizes["paper"]
        rows.append(
            Answer(
                question="Can a solver be written as a transformer?",
                answer=f"Yes: {compact.depth:,} blocks stay within {schemes.error:g} of the exact answer.",
                evidence=f"A certificate for every prompt; the paper's own network needs {paper.depth:,} blocks.",
                place="construction",
            )
        )
    models = [verdict for verdict in numbers.verdicts.values() if not verdict.is_control]
    controls = [verdict for verdict in numbers.verdicts.values() if verdict.is_control]
    if models:
        named = sum(verdict.solver is not None for verdict in models)
        right = sum(verdict.solver == verdict.truth for verdict in controls)
        silent, known = probed(numbers)
        cannot = f"Nor do {silent} of {known} networks known to run one, so this decides nothing."
        cannot = cannot if known else "It decides nothing about a solver inside, which such probes do not read."
        rows.append(
            Answer(
                question="Do the predictions of trained ones follow one?",
                answer=f"{named or 'None'} of {len(models)}, read by probes fitted on the labels. {cannot}",
                evidence=f"Of predictions that are a known solver's, {right} of {len(controls)} are named rightly."
                if controls
                else "",
                place="models",
            )
        )
    if found := Written.of(numbers):
        models_, known_ = left(found.models), left(found.known)
        rows.append(
            Answer(
                question="Does a solver run inside, where a probe does not see it?",
                answer="None was found by writing into the layers: the nearest solver tried misses "
                f"{span(models_)} of their response."
                if not found.claimed
                else f"In {len(found.claimed)} of {len(found.models)}.",
                evidence=f"In {len(known_)} networks trained to run one it misses {span(known_)}. {found.recognises}"
                if known_
                else "",
                place="instead",
            )
        )
    chebyshev = numbers.constructed.get("constructed-chebyshev")
    sphere = numbers.models.get("sphere")
    if chebyshev and sphere:
        rows.append(
            Answer(
                question="Is the paper's straight line of best-matching steps evidence?",
                answer="No: a network that takes another solver's steps has R² = "
                f"{chebyshev.richardson.r2:.3f} for Richardson.",
                evidence=f"Our trained model has {sphere.richardson.r2_text} (paper: {BEST_STEP_R2['sphere']}).",
                place="by-layer",
            )
        )
    return rows


def key_findings(numbers: Numbers, claims: Sequence[Claim] = (), comparisons: Sequence[Comparison] = ()) -> list[str]:
    sentences = []
    if any(claim.checks for claim in claims):
        sentences.append(
            f"Of {len(claims)} claims of the paper that are not numbers, in our models: {outcome_counts(claims)}."
        )
    if schemes := numbers.schemes:
        compact, exact, paper = (schemes.sizes[name] for name in ("compact", "exact-richardson", "paper"))
        sentences.append(
            f"A transformer of {compact.depth:,} blocks, with MLPs of {compact.width} units, is guaranteed to "
            f"stay within {schemes.error:g} of exact kernel ridge regression in the paper's setting (labels up to "
            f"{schemes.B_y:g}), without training; it takes Chebyshev steps. With the paper's Richardson steps it takes "
            f"{exact.depth:,} blocks, and the paper's own network needs {paper.depth:,} for the same promise."
        )
    sentences += _on_steps(numbers)
    verdicts = list(numbers.verdicts.values())
    sentences += _on_models([verdict for verdict in verdicts if not verdict.is_control])
    sentences += _on_controls([verdict for verdict in verdicts if verdict.is_control])
    sentences += [f"Written into: {words}"] if (words := in_words(numbers)) else []
    return sentences + _on_the_gaussian_column(comparisons)


def _on_models(verdicts: list[ModelVerdict]) -> list[str]:
    if not verdicts:
        return []
    named = [f"{verdict.name} ({verdict.solver})" for verdict in verdicts if verdict.solver]
    steps = [verdict.trained_steps or 0 for verdict in verdicts]
    length = f"{min(steps):,}" + (f" to {max(steps):,}" if max(steps) > min(steps) else "")
    nearest = Counter(verdict.nearest for verdict in verdicts if verdict.nearest)
    return [
        f"Of {len(verdicts)} trained transformers ({length} training steps), {len(named) or 'none'} can be said to "
        f"follow a solver of the library{': ' + ', '.join(named) if named else ''}, as far as probes fitted on the "
        "labels tell: they read the best prediction in a layer, and say nothing about a solver inside. "
        + " ".join(
            _on_class(kind, [each for each in verdicts if each.nearest == kind]) for kind, _ in nearest.most_common(2)
        )
    ]


def _on_class(kind: str, verdicts: list[ModelVerdict]) -> str:
    """The models that a class is nearest to."""
    rule, verdicts = calibrated_rule(), [verdict for verdict in verdicts if verdict.nearest == kind]
    clear = sum((verdict.margin or 0) >= rule.margin_limit for verdict in verdicts)
    U, V = ([verdict.U for verdict in verdicts], [verdict.V for verdict in verdicts])
    return (
        f"The nearest class is {kind} for {len(verdicts)} (for {clear} by more than the margin); it leaves "
        f"{_range(U)} of their layers' distance to exact kernel ridge regression unexplained, {_range(V)} with a "
        f"pattern, where {rule.v_limit:.1%} is allowed."
    )


def _range(values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "an unknown part"
    low, high = f"{known[0]:.0%}", f"{known[-1]:.0%}"
    return low if low == high else f"{low} to {high}"


def _on_controls(controls: list[ModelVerdict]) -> list[str]:
    if not controls:
        return []
    answers = "; ".join(f"{control.name}: {control.headline}" for control in controls)
    right = sum(control.solver == control.truth for control in controls)
    others = [control for control in controls if control.truth != "richardson"]
    fooled = sum(2 * control.won > control.depth for control in others)
    return [
        f"Of {len(controls)} controls whose answer is known the same instrument names {right} rightly ({answers}). "
        f"{len(others)} of them are not Richardson; the paper's metric calls most layers Richardson in {fooled} of "
        "these."
    ]


def _on_the_gaussian_column(comparisons: Sequence[Comparison]) -> list[str]:
    """Which spread of Gaussian inputs the paper's numbers on noise are those of."""
    told = [each for each in comparisons if each.high - each.low > 1e-9]  # not what is 1 by definition
    wide, stated = ([each for each in told if TITLES[name] in each.quantity] for name in ("gaussian-1.0", "gaussian"))
    fit_wide, fit_stated = (sum(each.outcome == "reproduced" for each in some) for some in (wide, stated))
    if fit_wide <= fit_stated or not stated:
        return []
    return [
        f"The paper's numbers on noise with Gaussian inputs fit s.d. 1.0 ({fit_wide} of {len(wide)} reproduced) better "
        f"than the s.d. 0.6 it states ({fit_stated} of {len(stated)})."
    ]


def _on_steps(numbers: Numbers) -> list[str]:
    """Whose best-matching steps are linear, in our model on the sphere and in a constructed one."""
    sentences = []
    if model := numbers.models.get("sphere"):
        words = (
            f"In our model on the sphere ({model.training}) {_linearity(model.alignment)}. Richardson is most "
            f"similar in {model.won} of {model.depth} layers (paper: {LAYERS_WON['sphere']})."
        )
        if read := model.by_last_token():
            words += f" Read by probes of the last token alone, {_linearity(read.alignment)}; Richardson is most "
            words += f"similar in {read.won} layers."
        sentences.append(words)
    if model := numbers.constructed.get("constructed-chebyshev"):
        sentences.append(
            f"A constructed transformer that takes Chebyshev steps has R² = {model.richardson.r2:.3f} against "
            "Richardson steps: a straight line alone names no solver. (How similar they are does tell here: Richardson "
            f"is most similar in {model.won} of {model.depth} layers.)"
        )
    return sentences


def _linearity(alignment: Alignment) -> str:
    """How linear the best-matching Richardson steps of a model are, and which solver's are the most."""
    paper = BEST_STEP_R2["sphere"]
    r2 = {name: found.r2 for name, found in alignment.solvers.items() if not isnan(found.r2)}
    words = f"all layers match one Richardson step best, where there is nothing linear (paper: R² = {paper})"
    if "richardson" in r2:
        words = "the Richardson steps that match its layers best fit a straight line with "
        words += f"R² = {alignment.richardson.r2:.3f} (paper: {paper})"
    best = max(r2, key=lambda name: r2[name], default=None)
    if best is None:
        return words
    cut = " (cut off by the budget of steps in more than a third of the layers)" if alignment.is_cut_off(best) else ""
    return f"{words}; of the four solvers those of {SOLVER_LABELS[best]} are the most linear, {r2[best]:.3f}{cut}"
