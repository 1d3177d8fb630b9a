"""The paper's claims that are not numbers, each with the checks our numbers allow and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from layerstep.reproduction.claims import checks
from layerstep.reproduction.claims.checks import LINEAR, LITTLE, NEAR, RISE, Check
from layerstep.reproduction.numbers import Numbers

OUTCOMES = (
    "supported", "supported where conclusive", "partly supported", "not supported", "inconclusive", "not tested",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says and where; `checks` are empty where the models that would tell are not here."""

    where: str
    says: str
    checks: Sequence[Check]

    @property
    def outcome(self) -> str:
        seen = {check.supported for check in self.checks}
        if seen <= {None}:
            return "inconclusive" if seen else "not tested"
        if True not in seen:
            return "not supported"
        return "partly supported" if False in seen else "supported where conclusive" if None in seen else "supported"


def outcome_tally(claims: Sequence[Claim]) -> list[tuple[int, str]]:
    """How many claims are supported, and how many are not; the best outcome first."""
    counts = Counter(claim.outcome for claim in claims)
    return [(counts[outcome], outcome) for outcome in OUTCOMES if counts[outcome]]


def outcome_counts(claims: Sequence[Claim]) -> str:
    """The same in words."""
    return ", ".join(f"{count} {outcome}" for count, outcome in outcome_tally(claims))


#: Where the paper says it, what it says, and the check.
STATEMENTS: tuple[tuple[str, str, Callable[[Numbers], Iterator[Check]]], ...] = (
    ("theorem", "A transformer with softmax attention can carry out preconditioned Richardson iteration, and its error "
     "is bounded.", checks.construction),
    ("section on alignment", "Layers of a trained transformer align with preconditioned Richardson iteration, on every "
     "input distribution.", checks.identified),
    ("Figure 1", "The model's error falls smoothly from layer to layer (in each, and in none by more than a third of "
     "the way).", checks.smooth),
    ("Figures 1, 4", "Conjugate gradients reach the model's error in fewer steps than it has layers; gradient descent "
     "and Nesterov's method do not reach it in the steps shown.", checks.curves),
    ("Figure 1", f"The error of conjugate gradients oscillates (rises by {RISE:.0%} or more, more than once).",
     checks.oscillates),
    ("Figures 2b, 3", f"Of the four solvers only Richardson's best-matching steps rise linearly (R² of {LINEAR} or "
     "more).", checks.only),
    ("Figure 2c", f"Richardson's best-matching steps rise linearly (R² of {LINEAR} or more) on every input "
     "distribution.", checks.linear),
    ("Figure 5, arc-cosine text", "Most layers are more similar to Richardson than to the other three solvers.",
     checks.similar),
    ("Figure 8", f"Without softmax no solver's best-matching steps are linear (R² of {LINEAR} or more) on all input "
     "distributions, as one's are with it, and Richardson's are less linear.", checks.softmax),
    ("arc-cosine kernel", "With another kernel fewer layers are most similar to Richardson, and its steps are less "
     "linear.", checks.kernel),
    ("Figure 9a", f"The number of heads has little effect on the error (up to {LITTLE:.0%} between two), and R² "
     f"remains close to 1 ({LINEAR} or more) with each.", checks.heads),
    ("Figure 9b", f"The error falls with the width, to near that of exact kernel ridge regression (up to {NEAR} "
     "times).", checks.width),
    ("Figures 6, 7", "In models of 24 layers, too, most layers are more similar to Richardson than to the other "
     "solvers.", checks.depth),
    ("Figure 7, caption", f"There Richardson's best-matching steps rise linearly (R² of {LINEAR} or more) in the "
     "earlier layers.", checks.early_line),
    ("Figure 10", "In prompts of the largest noise the model's error is nearer to that of the ridge encoded in "
     "training than to that of the best ridge.", checks.encoded),
    ("Figure 10", "The model's error is above that of the encoded ridge up to a noise of 0.1 and below it from 0.2 on, "
     "as if iteration had stopped early.", checks.early),
    ("Figure 10", "At every level of noise but that of training the error is above that of the best ridge.",
     checks.above_best),
)  # fmt: skip


def paper_claims(numbers: Numbers) -> list[Claim]:
    """Every claim, checked against the numbers that are here."""
    return [Claim(where=where, says=says, checks=list(check(numbers))) for where, says, check in STATEMENTS]
