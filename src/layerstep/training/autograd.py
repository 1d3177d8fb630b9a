"""Loss and gradient by autograd on the reference model, one model after another: any device, any precision."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call

from layerstep.training.gpt import GPT, enlist, interleave
from layerstep.training.stack import Layout


class AutogradNetwork:
    """gradient ← ∂ loss / ∂ weights, for S models whose weights are the rows of one buffer."""

    def __init__(self, gpt: GPT, layout: Layout, weights: Tensor, gradient: Tensor, precision: str) -> None:
        self.gpt = gpt
        self.half = precision == "bfloat16"
        # Leaves that share memory with the buffer: the optimizer writes the row, autograd sees the parameter.
        self.parameters = [
            {name: layout.view(weights, name)[s].detach().requires_grad_() for name in layout.slots}
            for s in range(len(weights))
        ]
        self.gradients = [[layout.view(gradient, name)[s] for name in layout.slots] for s in range(len(weights))]

    def __call__(
        self,
        x: Float[Tensor, "S B M d"],
        y: Float[Tensor, "S B M"],
        points: Float[Tensor, "S"],
        n: Int[Tensor, "S B"] | None = None,
    ) -> Float[Tensor, "S 2"]:
        """Fill the gradient; return each model's loss, and its squared error with the longest context.

        n, of an open mask only: how many points of a prompt are examples.
        """
        results = []
        for s, parameters in enumerate(self.parameters):
            tokens = interleave(x[s], y[s]) if n is None else enlist(x[s], y[s], n[s])
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half, cache_enabled=False):
                prediction = functional_call(self.gpt, parameters, (tokens,))
            square = (prediction.to(y.dtype) - y[s]).square()
            result = losses(square.unsqueeze(0), points[s : s + 1], None if n is None else n[s : s + 1])[0]
            gradients = torch.autograd.grad(result[0], list(parameters.values()))
            for slot, value in zip(self.gradients[s], gradients, strict=True):
                slot.copy_(value)
            results.append(result.detach())
        return torch.stack(results)


def losses(
    square: Float[Tensor, "S B M"], points: Float[Tensor, "S"], n: Int[Tensor, "S B"] | None
) -> Float[Tensor, "S 2"]:
    """The loss, a mean over context lengths of squared errors, and the mean over those with the longest context.

    Under an open mask a prompt has n examples, and all its other points are queries: it counts as one of its length,
    of which the lengths n = 0 .. points - 1 have equal shares.
    """
    at = torch.arange(square.shape[2], device=square.device)
    if n is None:
        mean = square.mean(1)
        active = at < points.unsqueeze(-1)
        return torch.stack([(mean * active).sum(1) / points, mean[:, -1]], dim=1)
    asked = at >= n.unsqueeze(-1)
    each = (square * asked).sum(2) / asked.sum(2)
    longest = n == points.unsqueeze(-1) - 1
    return torch.stack([each.mean(1), points * (each * longest).mean(1)], dim=1)
