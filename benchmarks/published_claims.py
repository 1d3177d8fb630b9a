"""The field's metric on planted truth: what similarity to iterative Newton says of paths that are something else.

    python benchmarks/published_claims.py                     # the table of docs/claims.md, and our verdict beside it
    python benchmarks/published_claims.py --plot FILE.png     # and its figure
    python benchmarks/published_claims.py --models            # the same of the models in results/linear, as measured

The report computes the same (`layerstep.reproduction.numbers.planted_paths`), on 320 prompts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from layerstep import plotting
from layerstep.reproduction.figures import published
from layerstep.reproduction.figures.result import Result
from layerstep.reproduction.numbers import Numbers, Store
from layerstep.reproduction.numbers.linear_models import read_linear_models
from layerstep.reproduction.numbers.planted_paths import PROMPTS, compare_planted_paths
from layerstep.reproduction.runs import shipped_numbers


def table(result: Result | None) -> str:
    """Its summary in Markdown."""
    if result is None or result.summary is None:
        return "nothing was measured"
    header, lines = result.summary
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(str(each) for each in row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--models", action="store_true")
    args = parser.parse_args()
    if args.models:
        print(table(published.trained(Numbers(linear_models=read_linear_models()))))
        return
    found = compare_planted_paths(Store(Path("build/claims"), shipped_numbers()), args.prompts)
    shown = published.planted(Numbers(planted_paths=found))
    print(table(shown))
    if args.plot and shown is not None:
        plotting.save(shown.draw(), args.plot, args.plot.suffix.lstrip("."))


if __name__ == "__main__":
    main()
