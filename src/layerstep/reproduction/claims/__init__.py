"""The paper's claims, checked against numbers, and what came out in a few sentences."""

from layerstep.reproduction.claims.findings import Answer, in_a_sentence, key_findings, main_answers
from layerstep.reproduction.claims.statements import Claim, outcome_counts, outcome_tally, paper_claims

__all__ = [
    "Answer", "Claim", "in_a_sentence", "key_findings", "main_answers", "outcome_counts", "outcome_tally",
    "paper_claims",
]  # fmt: skip
