"""Trains one layer of linear self-attention, used six times, on linear regression, and asks what it does.

    python benchmarks/train_self_attention.py --out results/linear/self-attention     nine thousand steps, minutes
    python benchmarks/train_self_attention.py --from results/linear/self-attention    asks about the weights there

Tokens (x_i, y_i), the query with y = 0, e_j += sum_i V e_i (e_i · A e_j) / 16 over the examples: the looped transformer
of von Oswald et al. (2212.07677), d = 5, N = 16, without norm, MLP or biases.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import layerstep as ls
from layerstep.files import provenance, read_tensors, save_tensors, write_json
from layerstep.measurement.interventions.instrument import intervene

TASK = ls.LinearRegression(d=5, N=16, sigma=0.1)
LOOPS, BATCH, RATE = 6, 192, 5e-3


class Layer(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.A, self.V = (nn.Linear(d + 1, d + 1, bias=False) for _ in range(2))
        for each in (self.A, self.V):
            nn.init.normal_(each.weight, std=0.005)

    def forward(self, e: Tensor) -> Tensor:
        examples = e[:, :-1]
        return e + self.A(e) @ examples.mT @ self.V(examples) / TASK.N


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer(TASK.d)

    def forward(self, e: Tensor) -> Tensor:
        for _ in range(LOOPS):
            e = self.layer(e)
        return -e[:, -1:, -1]


def trained(steps: int) -> Looped:
    torch.manual_seed(0)
    model = Looped()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 100) * max(0.02, 1 - s / steps))
    for step in range(steps):
        prompts = ls.sample(TASK, BATCH, seed=0, step=step).to(torch.float32)
        loss = (model(ls.pairs()(prompts))[:, 0] - prompts.y[:, -1]).square().mean()
        if loss.isfinite():  # a prompt with a large eigenvalue may explode
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        if step % max(1, steps // 8) == 0:
            print(f"step {step}: loss {float(loss.detach()):.4f}", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="place", type=Path)
    parser.add_argument("--steps", type=int, default=9000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = Looped() if given.place else trained(given.steps)
    if given.place:
        model.load_state_dict(read_tensors(given.place / "model.safetensors")[0])
    model = model.double().eval()
    for name, weight in model.named_parameters():
        print(f"{name}\n{weight.detach().numpy().round(3)}")
    reader = ls.Hooked(model=model, inputs=ls.pairs(), modules=["layer"] * LOOPS, mask="open")
    result = intervene(reader, TASK)
    print(result)
    for site, operator in result.operator.items():
        print(f"{site}: {operator}")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        save_tensors(given.out / "model.safetensors", model.float().state_dict(), {"format": "pt"})
        write_json(given.out / "interventions.json", {"result": result.to_dict(), "provenance": provenance()})


if __name__ == "__main__":
    main()
