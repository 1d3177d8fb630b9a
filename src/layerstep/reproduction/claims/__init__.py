"""The paper's claims, checked against numbers, and what came out in a few sentences."""

from layerstep.reproduction.claims.findings import key_findings
from layerstep.reproduction.claims.statements import Claim, outcome_counts, paper_claims

__all__ = ["Claim", "key_findings", "outcome_counts", "paper_claims"]
