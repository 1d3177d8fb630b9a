"""Error and bound against the number of iterations, as plain data for a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from layerstep.construction.certificate import certify
from layerstep.construction.network import Construction
from layerstep.errors import require, require_kind
from layerstep.tasks.posterior import coefficients
from layerstep.tasks.prompts import Prompts


@torch.no_grad()
def convergence_data(network: Construction, prompts: Prompts, stages: Sequence[int] | None = None) -> dict[str, Any]:
    """For each stage, over the prompts with all their N examples: median and largest error, median and largest bound.

    "error" is |read-out - exact KRR|, "bound" the a-posteriori bound of the same read-out; `violations` counts
    predictions with error above bound, and is 0. "promised" is the certificate of the whole network.
    """
    require_kind("network", network, Construction, "Make one with ls.construct.")
    require_kind("prompts", prompts, Prompts, "Make them with ls.Prompts(x, y) or ls.sample(task, B, seed).")
    problem, n = network.problem, prompts.N
    d, kernel, lam = problem.d, problem.kernel, problem.lam
    require(prompts.d == d, "prompts.d", prompts.d, f"{d}, as this network was built for")
    x, y, xq = (tensor.double() for tensor in (prompts.x[:, :n], prompts.y[:, :n], prompts.x[:, n:]))
    x, xq = problem.scaled(x), problem.scaled(xq)
    network.require_prompts(x, y, xq, torch.tensor([n]))
    kept = network.stages(stages)
    w_exact = coefficients(kernel(x, x), y.unsqueeze(-1), lam)
    exact = (kernel(xq, x) @ w_exact)[:, 0, 0]
    errors, bounds = ({stage: torch.empty(prompts.B, dtype=torch.float64) for stage in kept} for _ in range(2))
    row = network.stream.row
    for piece, run in network.pieces(x, y, xq):
        with run.threads():
            for stage in run.iterate():
                if stage in kept:
                    out = run.read_out()[row("y")]
                    w = run.closed[row("w"), :, run.spans["train"]]
                    for index, b in enumerate(range(piece.start, piece.stop)):
                        bounds[stage][b] = certify(x[b], y[b], xq[b], w[index], out[index], kernel, lam).bound[0]
                    errors[stage][piece] = (out[:, 0].cpu() - exact[piece]).abs()
    return {
        "scheme": network.certificate.scheme,
        "promised": network.certificate.bound,
        "prompts": prompts.B,
        "stages": kept,
        "median_error": [errors[stage].median().item() for stage in kept],
        "largest_error": [errors[stage].max().item() for stage in kept],
        "median_bound": [bounds[stage].median().item() for stage in kept],
        "largest_bound": [bounds[stage].max().item() for stage in kept],
        "violations": sum(int((errors[stage] > bounds[stage]).sum()) for stage in kept),
    }
