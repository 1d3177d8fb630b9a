"""Which solver do layers of linear self-attention run? Interventions on networks whose weights are written by hand.

    python benchmarks/linear_interventions.py --seeds 1 --each 5

Tokens (x_i, y_i), the query with y = 0, and e_j += sum_i V e_i (x_i · W x_j): the networks of von Oswald et al.
(2212.07677). With W = I a layer is a step of gradient descent, with a part of V that moves x of GD++. The stream is a
mixture of these numbers that the seed draws, so that no coordinate is a label. Positives and, of which nothing may be
claimed: steps of sizes that differ from layer to layer, another metric W, a state that is there and not used, weights
drawn at random, and positives with their own solver left out of the search.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import layerstep as ls
from layerstep.measurement.interventions.instrument import intervene

FEW = {"fit": 96, "choose": 24, "score": 48, "check": 12}
KINDS = ("gd-weights", "gd++", "uneven", "metric", "not used", "random")


@dataclass(frozen=True, kw_only=True)
class Spec:
    kind: str
    d: int
    N: int
    layers: int
    eta: float
    gamma: float
    seed: int

    @property
    def task(self) -> ls.LinearRegression:
        return ls.LinearRegression(d=self.d, N=self.N, sigma=0.1)


class Written(nn.Module):
    """The network of a Spec; `layers` are modules so that they can be read and written."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        random = np.random.default_rng((spec.seed, 1))
        d = spec.d
        self.spec = spec
        self.mixing = torch.from_numpy(random.standard_normal((d + 1, d + 1)))
        sizes = np.full(spec.layers, spec.eta)
        W, V = np.eye(d), np.zeros((spec.layers, d + 1, d + 1))
        if spec.kind == "uneven":
            sizes = spec.eta * np.exp(random.uniform(-0.6, 0.6, spec.layers))
        if spec.kind == "metric":
            W = np.diag(np.exp(random.uniform(-0.7, 0.7, d)))
        V[:, d, d] = -sizes
        if spec.kind == "gd++":
            V[:, :d, :d] = -spec.gamma * np.eye(d)
        if spec.kind == "random":
            V = spec.eta * random.standard_normal(V.shape)
            W = random.standard_normal((d, d)) / np.sqrt(d)
        self.layers = nn.ModuleList(Layer(torch.from_numpy(each), torch.from_numpy(W), self.mixing) for each in V)
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        e = tokens @ self.mixing.T
        for layer in self.layers:
            e = layer(e)
        f = -torch.linalg.solve(self.mixing, e.mT).mT[:, -1:, -1]
        if self.spec.kind != "not used":
            return f
        X, y, q = tokens[:, :-1, :-1], tokens[:, :-1, -1:], tokens[:, -1:, :-1]
        theta = torch.linalg.solve(X.mT @ X + self.spec.task.lam * torch.eye(self.spec.d).to(X), X.mT @ y)
        return (q @ theta)[..., 0] + 0 * f


class Layer(nn.Module):
    def __init__(self, V: Tensor, W: Tensor, mixing: Tensor) -> None:
        super().__init__()
        self.V, self.W, self.mixing = V, W, mixing

    def forward(self, e: Tensor) -> Tensor:
        token = torch.linalg.solve(self.mixing, e.mT).mT
        examples, x = token[:, :-1], token[..., :-1]
        scores = x @ self.W @ examples[..., :-1].mT
        return (token + scores @ examples @ self.V.T) @ self.mixing.T


def specs(seed: int, each: int) -> list[Spec]:
    random = np.random.default_rng(seed)
    found = []
    for kind in KINDS:
        for _ in range(each):
            d, N, layers = int(random.integers(3, 7)), int(random.integers(10, 21)), int(random.integers(4, 8))
            top = N * (1 + np.sqrt(d / N)) ** 2  # about the largest eigenvalue of K
            eta = float(np.exp(random.uniform(np.log(0.3), np.log(0.9)))) / top
            gamma = float(random.uniform(0.08, 0.3)) * eta
            found.append(
                Spec(kind=kind, d=d, N=N, layers=layers, eta=eta, gamma=gamma, seed=int(random.integers(2**31)))
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--each", type=int, default=5, help="networks of each kind per seed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for spec in (spec for seed in given.seeds for spec in specs(seed, given.each)):
        names = [f"layers.{index}" for index in range(spec.layers)]
        reader = ls.Hooked(model=Written(spec), inputs=ls.pairs(), modules=names, mask="open")
        positive = spec.kind in ("gd-weights", "gd++")
        for without in ((), ("gd-weights", "gd++")) if positive else ((),):
            count = counts[f"{spec.kind}, own solvers left out" if without else spec.kind]
            count["networks"] += 1
            try:
                result = intervene(reader, spec.task, seed=spec.seed % 1000, prompts=FEW, checks=False, without=without)
            except ls.LayerstepError as error:
                count["no claim"] += 1
                print(f"  {spec.kind}: {error}", flush=True)
                continue
            said = {(claim.solver, claim.form) for claim in result.claims}
            if not said:
                count["no claim"] += 1
            elif positive and not without and said == {(spec.kind, "functional")}:
                count["right"] += 1
                for claim in result.claims:
                    first = spec.layers - 1 - names.index(claim.first)
                    count["layers claimed"] += len(claim.steps_left)
                    count["steps left right"] += sum(k == first - at for at, k in enumerate(claim.steps_left))
                    count["step size within 2 %"] += len(claim.steps_left) * (abs(claim.eta / spec.eta - 1) < 0.02)
            else:
                count["wrong"] += 1
                print(f"  {spec}: {'; '.join(map(str, result.claims))}", flush=True)
    heads = ("networks", "right", "no claim", "wrong", "layers claimed", "steps left right", "step size within 2 %")
    print(f"| network | {' | '.join(heads)} |\n{'|---' * (len(heads) + 1)}|")
    for name, count in counts.items():
        print(f"| {name} | {' | '.join(str(count[head]) for head in heads)} |")


if __name__ == "__main__":
    main()
