"""layerstep evaluate: how far finished runs are from exact kernel ridge regression."""

from __future__ import annotations

from pathlib import Path

from layerstep.cli.output import Output, table


def run(*directories: Path, prompts: int | None = None, device: str | None = None) -> Output:
    """Say how far finished runs are from exact kernel ridge regression on the same prompts.

    Args:
        directories: of runs, or of sweeps; every finished run below them is evaluated.
        prompts: evaluate anew on so many prompts, and print only. Without it: what evaluation.json says, which is
            made on 2,048 prompts and kept where it is missing.
        device: cpu, cuda, cuda:1 or mps; the best there is when not given.
    """
    from layerstep.errors import FileError, require, require_count
    from layerstep.training.evaluation import evaluate_entry, finished_runs

    require(len(directories) > 0, "directories", "none", "one or more that layerstep train or sweep wrote")
    if prompts is not None:
        require_count(prompts=prompts)
    entries = []
    for root in directories:
        there = finished_runs(root)
        if not there:
            raise FileError(f"{root} holds no finished run. How far its runs are: layerstep runs {root}")
        entries += there
    data, rows, curve = [], [], []
    for entry in entries:
        found = evaluate_entry(entry, prompts=prompts, device=device)
        data.append({"folder": str(entry.folder), "identity": entry.identity, "evaluation": found.to_dict()})
        last = [f"{found.mse[-1]:.4f}", f"{found.krr[-1]:.4f}", f"{found.ratio:.3f}"]
        rows.append([str(entry.folder), f"{found.B:,}", *last])
        errors = enumerate(zip(found.mse.tolist(), found.krr.tolist(), strict=True))
        curve = [[f"{n}", f"{mse:.4f}", f"{krr:.4f}"] for n, (mse, krr) in errors]
    parts = [table(["run", "prompts", "MSE", "exact KRR", "ratio"], rows, "All examples in the context")]
    if len(entries) == 1:
        parts.insert(0, table(["examples", "MSE", "exact KRR"], curve))
    return Output(data, parts)
