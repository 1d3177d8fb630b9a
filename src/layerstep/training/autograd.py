"""Loss and gradient by autograd on the reference model, one model after another: any device, any precision."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from layerstep.training.gpt import GPT, interleave
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
        self, x: Float[Tensor, "S B M d"], y: Float[Tensor, "S B M"], points: Float[Tensor, "S"]
    ) -> Float[Tensor, "S 2"]:
        """Fill the gradient; return each model's loss, and its squared error with the longest context."""
        active = torch.arange(x.shape[2], device=x.device) < points.unsqueeze(-1)
        weight = active / (points.unsqueeze(-1) * x.shape[1])
        results = []
        for s, parameters in enumerate(self.parameters):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half, cache_enabled=False):
                prediction = functional_call(self.gpt, parameters, (interleave(x[s], y[s]),))
            error = (prediction.to(y.dtype) - y[s]).square()
            loss = (error * weight[s]).sum()
            for slot, value in zip(
                self.gradients[s], torch.autograd.grad(loss, list(parameters.values())), strict=True
            ):
                slot.copy_(value)
            results.append(torch.stack([loss.detach(), error[:, -1].mean().detach()]))
        return torch.stack(results)
