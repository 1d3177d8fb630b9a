"""A constructed transformer in torch.nn alone: this file needs torch and safetensors, and nothing of layerstep.

    model = load("weights.safetensors")
    value = model.predict(x, y, xq)          # x [n, d], y [n], xq [M, d]

Blocks are attention (nn.Linear q, k, v per head, no bias, no scaling) and a ReLU MLP (nn.Linear, no bias), each added
to the stream. The file's header says, as JSON, which block uses which weights, who may attend to whom, and which
row of the stream is what.
"""

import json

import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F

DUMMY, TRAIN, QUERY = range(3)


def linear(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


class Attention(nn.Module):
    """z_i <- z_i + Σ_heads Σ_j softmax_j(q_i·k_j + mask_ij) v_j."""

    def __init__(self, W_Q: torch.Tensor, W_K: torch.Tensor, W_V: torch.Tensor, masks: list) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.ModuleList(linear(W) for W in stack) for stack in (W_Q, W_K, W_V))
        self.masks = masks

    def forward(self, z: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        update = 0
        for q, k, v, mask in zip(self.q, self.k, self.v, self.masks, strict=True):
            weights = F.softmax((q(z) @ k(z).mT).masked_fill(~allowed(mask, kinds), -torch.inf), dim=-1)
            update = update + weights @ v(z)
        return z + update


def allowed(mask: list, kinds: torch.Tensor) -> torch.Tensor:
    """[T, T], (query, key): mask[kind] names the keys that a token of this kind may attend to."""
    itself = torch.eye(len(kinds), dtype=torch.bool, device=kinds.device)
    key = {
        "dummy": (kinds == DUMMY).expand_as(itself),
        "train": (kinds == TRAIN).expand_as(itself),
        "others": (kinds == TRAIN) & ~itself,
        "query": (kinds == QUERY).expand_as(itself),
        "itself": itself,
    }
    rows = [torch.stack([key[name] for name in names]).any(0) for names in mask]
    return torch.stack(rows)[kinds, torch.arange(len(kinds), device=kinds.device)]


class MLP(nn.Sequential):
    """z <- z + W_out relu(W_in z)."""

    def __init__(self, W_in: torch.Tensor, W_out: torch.Tensor) -> None:
        super().__init__(linear(W_in), nn.ReLU(), linear(W_out))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z + super().forward(z)


class Transformer(nn.Module):
    def __init__(self, tensors: dict[str, torch.Tensor], layout: dict) -> None:
        super().__init__()
        self.layout = layout
        self.attentions = nn.ModuleList(
            Attention(**{name: tensors[f"attentions.{i}.{name}"] for name in ("W_Q", "W_K", "W_V")}, masks=masks)
            for i, masks in enumerate(layout["masks"])
        )
        self.mlps = nn.ModuleList(
            MLP(tensors[f"mlps.{i}.W_in"], tensors[f"mlps.{i}.W_out"]) for i in range(layout["mlps"])
        )

    def forward(self, z: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        """The stream [T, D] after all blocks; a block is a pair of indices, None where a part is absent."""
        for attention, mlp in self.layout["blocks"]:
            if attention is not None:
                z = self.attentions[attention](z, kinds)
            if mlp is not None:
                z = self.mlps[mlp](z)
        return z

    @torch.no_grad()
    def predict(self, x: torch.Tensor, y: torch.Tensor, xq: torch.Tensor) -> torch.Tensor:
        """Predictions at xq [M, d] from examples x [n, d], y [n]."""
        row, n, M = self.layout["stream"], len(x), len(xq)
        if self.layout.get("scales"):
            scales = torch.tensor(self.layout["scales"], dtype=torch.float64, device=x.device)
            x, xq = x.double() / scales, xq.double() / scales
        if self.layout.get("centre") and n > 0:
            # The kernel does not see a shift; inner products in the logits do, by rounding.
            centre = x.double().mean(0)
            x, xq = x - centre, xq - centre
        weight = next(self.parameters())
        kinds = torch.tensor([DUMMY] + [TRAIN] * n + [QUERY] * M, device=weight.device)
        z = torch.zeros(1 + n + M, self.layout["width"], dtype=weight.dtype, device=weight.device)
        z[1:, : x.shape[1]] = torch.cat([x, xq]).to(z)
        z[1 : 1 + n, row["y"]] = y.to(z)
        z[:, row["x2"]] = z[:, : x.shape[1]].square().sum(-1)
        z[0, row["s"]] = z[1 + n :, row["t"]] = z[:, row["one"]] = 1
        return self(z, kinds)[1 + n :, row["y"]]


def load(path: str) -> Transformer:
    with safe_open(path, framework="pt") as file:
        layout = json.loads(file.metadata()["layout"])
        return Transformer({name: file.get_tensor(name) for name in file.keys()}, layout)  # noqa: SIM118
