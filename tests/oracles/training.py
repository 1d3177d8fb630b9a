"""Training as torch has it: its own optimizer, clipping and autograd, one model after another, step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from layerstep.training import GPT, Run, learning_rate
from layerstep.training.engine import Engine
from layerstep.training.sampling import CHUNK, draw_chunk

CPU = torch.device("cpu")


def reference(run: Run, steps: int, loss_of: Callable[[GPT, Tensor, Tensor, int], Tensor]) -> tuple[GPT, list[float]]:
    """The model and its losses; loss_of(model, x, y, step) is the loss on the prompts of a step."""
    gpt = GPT(run.model, run.task.d, run.task.N).double().initialise(run.seed)
    optimizer = torch.optim.AdamW(
        gpt.parameters(), lr=1.0, betas=(run.beta1, run.beta2), eps=run.eps, weight_decay=run.weight_decay
    )
    losses = []
    for step in range(steps):
        chunk, at = divmod(step, CHUNK)
        x, y = (part[at] for part in draw_chunk(run, chunk, torch.float64, CPU))
        loss = loss_of(gpt, x, y, step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), run.clip)
        optimizer.param_groups[0]["lr"] = learning_rate(run, step)
        optimizer.step()
        losses.append(loss.item())
    return gpt, losses


def advance(engine: Engine, steps: int) -> Tensor:
    """The losses of the next steps of an engine."""
    target, losses = engine.step + steps, []
    while engine.step < target:
        losses.append(engine.advance(target - engine.step))
    return torch.cat(losses)


def same_training(engine: Engine, index: int, steps: int, wanted: tuple[GPT, list[float]]) -> None:
    """Advance an engine: model `index` of it has the losses and weights of the reference."""
    gpt, losses = wanted
    found = advance(engine, steps)[:, index, 0]
    torch.testing.assert_close(found, torch.tensor(losses, dtype=torch.float64), rtol=1e-9, atol=0)
    for name, tensor in gpt.state_dict().items():
        torch.testing.assert_close(engine.gpt(index).state_dict()[name], tensor, rtol=1e-6, atol=1e-9)


def restores_bitwise(run: Run, steps: int) -> None:
    """An engine that takes over after 13 steps, in the middle of a chunk, goes on to the same bits."""
    engine, other = Engine([run], CPU), Engine([run], CPU)
    advance(engine, 13)
    other.restore({name: tensor.clone() for name, tensor in engine.state.items()}, 13)
    assert torch.equal(advance(engine, steps), advance(other, steps))
    assert torch.equal(engine.weights, other.weights)
