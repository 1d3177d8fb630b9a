"""Folders in the layouts of published checkpoints, rebuilt with few weights."""

import math

import torch

CONFIG = """\
inherit:
- base.yaml
model:
  family: {family}
  n_dims: {d}
  n_embd: {width}
  n_head: {heads}
  n_layer: {layers}
  n_positions: {positions}
{more}out_dir: ../models/x
training:
  batch_size: 64
  curriculum:
    dims:
      end: {d}
      inc: 1
    points:
      end: {points}
      start: 11
  learning_rate: 0.0001
  task: {task}
  task_kwargs: {kwargs}
  train_steps: 500001
wandb:
  notes: ''
"""
SHAPE = {"d": 3, "width": 16, "heads": 2, "layers": 2, "positions": 13, "points": 9, "more": ""}


def folder_of(path, state, family="gpt2", task="linear_regression", kwargs="{}", **more):
    text = CONFIG.format(**SHAPE | {"family": family, "task": task, "kwargs": kwargs} | more)
    (path / "config.yaml").write_text(text)
    torch.save({"model_state_dict": state, "optimizer_state_dict": {}, "train_step": 3}, path / "state.pt")
    return path


def draw(*shape):
    return 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape) + len(shape)))


def linear(name, rows, columns, bias=True):
    return {f"{name}.weight": draw(rows, columns)} | ({f"{name}.bias": draw(rows)} if bias else {})


def norm(name, width):
    return {f"{name}.weight": 1 + draw(width), f"{name}.bias": draw(width)}


def gpt_state(root, turned, positions, layers=2, d=3, W=16):
    """The tensors of a GPT-2 (matrices turned) or a nanoGPT between read-in and read-out."""
    state = linear("_read_in", W, d) | linear("_read_out", 1, W) | {f"{root}wpe.weight": draw(positions, W)}
    for k in range(layers):
        block = f"{root}h.{k}."
        state |= norm(f"{block}ln_1", W) | norm(f"{block}ln_2", W)
        sizes = {"attn.c_attn": (3 * W, W), "attn.c_proj": (W, W), "mlp.c_fc": (4 * W, W), "mlp.c_proj": (W, 4 * W)}
        for name, size in sizes.items():
            state |= linear(block + name, *size)
            if turned:
                state[f"{block}{name}.weight"] = state[f"{block}{name}.weight"].T.contiguous()
        if turned:
            state |= {
                f"{block}attn.bias": torch.ones(1, 1, 26, 26).tril(),
                f"{block}attn.masked_bias": torch.tensor(-1e4),
            }
    return state | norm(f"{root}ln_f", W) | ({f"{root}wte.weight": draw(50, W)} if turned else {})


def encoder_state(layers=2, d=3, W=16):
    """The tensors of an encoder of Bai et al."""
    state = linear("_read_in", W, d + 1) | linear("_read_out", 1, W)
    for k in range(layers):
        for name in ("_queries", "_keys", "_values"):
            state |= linear(f"{name}.{k}", W, W, bias=False)
        state |= norm(f"_lns_1.{k}", W) | norm(f"_lns_2.{k}", W)
        state |= linear(f"_mlps.{k}.0", W, W) | linear(f"_mlps.{k}.2", W, W)
    return state


NANO = "_backbone.transformer."
PUBLISHED = {
    "garg": lambda folder: folder_of(folder, gpt_state("_backbone.", True, 26)),
    "yang": lambda folder: folder_of(folder, gpt_state(NANO, False, 27)),
    "looped": lambda folder: folder_of(folder, gpt_state(NANO, False, 27, layers=1), family="gpt2_loop", layers=1),
    "encoder": lambda folder: folder_of(folder, encoder_state(), family="EncoderTF"),
}
