"""The paper's claims that are not numbers, each with the checks our result files allow and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from layerstep.reproduction.claims import checks
from layerstep.reproduction.claims.checks import LITTLE, NEAR, RISE, STRAIGHT, Check
from layerstep.reproduction.figures.trained import Found
from layerstep.reproduction.result import Data


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
        if True not in seen:
            return "does not hold"
        return "holds in part" if False in seen else "holds where it can be told" if None in seen else "holds"


#: Outcomes of several claims.
PLURAL = {
    "holds": "hold",
    "holds where it can be told": "hold where it can be told",
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
         "error is bounded.", checks.construction),
        ("section on alignment", "Layers of a trained transformer align with preconditioned Richardson iteration, on "
         "every law of inputs.", checks.verdicts),
        ("Figure 1", "The model's error falls smoothly from layer to layer (in each, and in none by more than a third "
         "of the way).", checks.smooth),
        ("Figures 1, 4", "Conjugate gradients reach the model's error in fewer steps than it has layers; gradient "
         "descent and Nesterov's method do not reach it in the steps shown.", checks.curves),
        ("Figure 1", f"The error of conjugate gradients oscillates (rises by {RISE:.0%} or more, more than once).",
         checks.oscillates),
        ("Figures 2b, 3", f"Of the four solvers only Richardson's best-matching steps rise in a straight line (R² of "
         f"{STRAIGHT} or more).", checks.only),
        ("Figure 2c", f"Richardson's best-matching steps rise in a straight line (R² of {STRAIGHT} or more) on every "
         "law.", checks.straight),
        ("Figure 5, arc-cosine text", "Most layers are more similar to Richardson than to the other three solvers.",
         checks.similar),
        ("Figure 8", f"Without softmax no solver's best-matching steps are straight (R² of {STRAIGHT} or more) on all "
         "laws, as one's are with it, and Richardson's are less straight.", checks.softmax),
        ("arc-cosine kernel", "With another kernel fewer layers are most similar to Richardson, and its line is less "
         "straight.", checks.kernel),
        ("Figure 9a", f"The number of heads has little effect on the error (up to {LITTLE:.0%} between two), and R² "
         f"remains close to 1 ({STRAIGHT} or more) with each.", checks.heads),
        ("Figure 9b", f"The error falls with the width, to near that of exact kernel ridge regression (up to {NEAR} "
         "times).", checks.width),
        ("Figures 6, 7", "In models of 24 layers, too, most layers are more similar to Richardson than to the other "
         "solvers.", checks.depth),
        ("Figure 7, caption", f"There Richardson's best-matching steps rise in a straight line (R² of {STRAIGHT} or "
         "more) in the earlier layers.", checks.early_line),
        ("Figure 10", "In prompts of the largest noise the model's error is nearer to that of the ridge encoded in "
         "training than to that of the best ridge.", checks.encoded),
        ("Figure 10", "The model's error is above that of the encoded ridge up to a noise of 0.1 and below it "
         "from 0.2 on, as if iteration had stopped early.", checks.early),
        ("Figure 10", "At every level of noise but that of training the error is above that of the best ridge.",
         checks.above_best),
    ]  # fmt: skip
    return [Claim(where=where, says=says, checks=list(tried(models, data))) for where, says, tried in written]
