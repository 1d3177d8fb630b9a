"""Published models: `load(folder)` makes (model, task) of a checkpoint and the configuration beside it.

Layouts: Garg et al.'s (dtsip/in-context-learning and its copies), Yang et al.'s, looped or not
(Leiay/looped_transformer), Bai et al.'s encoder (allenbai01/transformers-as-statisticians), and layerstep's own.
Nothing in a file is executed: tensors are read by torch.load(weights_only=True), the configuration as data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.errors import FileError, as_path, require, require_count
from layerstep.measurement.reading.hooks import Hooked
from layerstep.measurement.reading.tokens import interleaved, pairs
from layerstep.tasks import LinearRegression, require_task
from layerstep.training import GPT, Model
from layerstep.training.huggingface import backbone_names, count_layers, load_garg, read_state
from layerstep.training.pretrained import CONFIG
from layerstep.training.pretrained import load as fill

YAML = "config.yaml"
STATES = ("state.pt", "model.pt")
LOOPS = 12
#: Names in Yang et al.'s nanoGPT: the same blocks under another root, their matrices not transposed.
NANO = "_backbone.transformer."


def load(
    path: str | os.PathLike, *, task: Any = None, loops: int | None = None
) -> tuple[GPT | Hooked, LinearRegression | Any]:
    """(model, task) of a folder with config.yaml and state.pt, or of a checkpoint file in such a folder.

    model: a GPT, or a reader of a looped transformer or an encoder; both go into ls.probe and ls.identify. task: linear
    regression as the configuration describes it, with prompts as long as training ended with; for others (networks,
    trees) give your own. loops: of a looped transformer, one site each (12).
    """
    place = as_path("path", path)
    if task is not None:
        require_task(task, "sample", remedy="Left out it is that of the folder.")
    if loops is not None:
        require_count(loops=loops)
    folder = place if place.is_dir() else place.parent
    if (folder / CONFIG).is_file() and not (folder / YAML).is_file():
        return _own(folder, task)
    if not (folder / YAML).is_file():
        words = f"{folder} holds no {YAML}. It lies beside published checkpoints and says how many heads there are."
        raise FileError(words + " Of bare weights: load_garg(file, heads=...).")
    config = read_yaml(folder / YAML)
    file = place if place.is_file() else _state_file(folder)
    about = config.get("model")
    if not isinstance(about, Mapping):
        raise FileError(f"{folder / YAML} has no `model:`. Copy it again from where the checkpoint is from.")
    family = about.get("family")
    task = _task_of(config, folder / YAML) if task is None else task
    if family == "gpt2":
        heads = _number(about, "n_head", folder)
        state = read_state(file)
        return (_nano(state, heads, str(file)) if f"{NANO}wpe.weight" in state else load_garg(file, heads=heads)), task
    if family == "gpt2_loop":
        return _looped(read_state(file), about, folder, str(file), LOOPS if loops is None else loops), task
    if family == "EncoderTF":
        return _encoder(read_state(file), about, folder, str(file)), task
    raise FileError(
        f"{folder / YAML}: family = {family!r}: must be gpt2, gpt2_loop or EncoderTF. Wrap the model in ls.Hooked."
    )


def _own(folder: Path, task: Any) -> tuple[GPT, Any]:
    from layerstep.measurement.combined.subject import made_for
    from layerstep.tasks import task_from_dict

    gpt = GPT.from_pretrained(folder)
    known = made_for(folder, gpt)
    require(
        task is not None or len(known) > 2, "task", "None", f"given, for {folder} does not say what it was made for"
    )
    return gpt, task_from_dict(known) if task is None else task


def _state_file(folder: Path) -> Path:
    for name in STATES:
        if (folder / name).is_file():
            return folder / name
    steps = sorted(folder.glob("model_*.pt"), key=lambda file: int("0" + "".join(filter(str.isdigit, file.stem))))
    if not steps:
        raise FileError(f"{folder} holds no {' or '.join(STATES)}, nor model_<step>.pt. Name the checkpoint itself.")
    return steps[-1]


def read_yaml(file: Path) -> dict[str, Any]:
    """Nested mappings and scalars of a configuration that yaml.dump wrote; lists are left as text. Nothing else."""
    root: dict[str, Any] = {}
    levels: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file} cannot be read ({error}).") from error
    for line in text.splitlines():
        body = line.split(" #")[0].rstrip()
        name, colon, value = body.strip().partition(":")
        if not body or body.lstrip().startswith(("#", "-")) or not colon:
            continue
        indent = len(body) - len(body.lstrip())
        while levels[-1][0] >= indent:
            levels.pop()
        inside: dict[str, Any] = {}
        levels[-1][1][name.strip()] = _scalar(value.strip()) if value.strip() else inside
        if not value.strip():
            levels.append((indent, inside))
    return root


def _scalar(text: str) -> Any:
    plain = text.strip("'\"")
    if text in ("null", "~", "{}", "[]"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return plain


def _task_of(config: Mapping[str, Any], file: Path) -> LinearRegression:
    """The task that the configuration trains on; prompts as long as its curriculum ends with."""
    training, model = _inside(config, "training"), config["model"]
    name = training.get("task", training.get("task_name"))
    kwargs = _inside(training, "task_kwargs")
    points = _inside(_inside(training, "curriculum"), "points")
    d = _number(model, "n_dims", file.parent)
    N = (_number(points, "end", file.parent) if points.get("end") else _number(model, "n_positions", file.parent)) - 1
    task = LinearRegression(d=d, N=N)
    if name == "linear_regression":
        return task
    if name == "noisy_linear_regression":
        return replace(task, sigma=kwargs.get("noise_std") or training.get("noise_std") or 1.0)
    if name == "sparse_linear_regression":
        return replace(task, prior=f"sparse:{kwargs.get('sparsity') or training.get('sparsity') or 3}")
    raise FileError(
        f"{file}: task = {name!r} is not linear regression. Give one of your own that draws such prompts: "
        "ls.load(folder, task=...), and compare with ls.identify(..., anchor='final')."
    )


def _inside(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What is indented below a name; nothing where there is a single value or none."""
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(values: Mapping[str, Any], name: str, folder: Path) -> int:
    if not isinstance(values.get(name), int):
        raise FileError(f"{folder / YAML}: `{name}` is {values.get(name)!r}, which must be a number.")
    return values[name]


def _shape(state: dict[str, Tensor], name: str, where: str) -> tuple[int, int]:
    """Rows and columns of a matrix."""
    if name not in state or state[name].ndim != 2:
        raise FileError(f"{where} does not have the layout of its family: {name} is missing, or not a matrix.")
    rows, columns = state[name].shape
    return rows, columns


def _nano(state: dict[str, Tensor], heads: int, where: str) -> GPT:
    """A GPT from nanoGPT's names between read-in and read-out."""
    width, d = _shape(state, "_read_in.weight", where)
    N = _shape(state, f"{NANO}wpe.weight", where)[0] // 2 - 1  # there is one position more than tokens
    layers = count_layers(state, f"{NANO}h.")
    require(N >= 1, f"{NANO}wpe", f"{N} examples", "positions of two points or more")
    gpt = GPT(Model(layers=layers, heads=heads, width=width), d=d, N=N)
    names = {ours: f"{NANO}{theirs}" for ours, theirs in backbone_names(layers).items()}
    names |= {f"{ours}.{part}": f"_{ours}.{part}" for ours in ("read_in", "read_out") for part in ("weight", "bias")}
    there = {ours: state[theirs] for ours, theirs in names.items() if theirs in state}
    there["positions"] = state[f"{NANO}wpe.weight"][: 2 * (N + 1)]
    fill(gpt, there, where)
    return gpt.eval()


class Looped(nn.Module):
    """z <- f(x + z) with one transformer f, ended by its norm; what is read after any of the loops is a prediction."""

    def __init__(self, gpt: GPT, loops: int, product: bool = False) -> None:
        super().__init__()
        self.gpt, self.loops, self.product = gpt, loops, product
        self.body = _Body(gpt)

    def forward(self, tokens: Float[Tensor, "B T D"]) -> Float[Tensor, "B M"]:
        x = self.gpt.read_in(tokens)
        z = torch.ones_like(x) if self.product else torch.zeros_like(x)
        for _ in range(self.loops):
            z = self.body(x * z if self.product else x + z)
        return self.gpt.read_out(z[:, 0::2]).squeeze(-1)


class _Body(nn.Module):
    """Positions, blocks and the final norm of a GPT."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.positions, self.blocks, self.norm = gpt.positions, gpt.blocks, gpt.norm

    def forward(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        x = x + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def _looped(state: dict[str, Tensor], about: Mapping[str, Any], folder: Path, where: str, loops: int) -> Hooked:
    require_count(loops=loops)
    form = about.get("loop_func", "z=f(x+z)")
    require(form in ("z=f(x+z)", "z=f(x*z)"), "loop_func", form, "z=f(x+z) or z=f(x*z)")
    gpt = _nano(state, _number(about, "n_head", folder), where)
    return Hooked(model=Looped(gpt, loops, form == "z=f(x*z)").eval(), inputs=interleaved(), modules=["body"] * loops)


class EncoderBlock(nn.Module):
    """H += A V, A = ReLU(Q Kᵀ) / tokens or softmax, then a norm; the same of an MLP: post-LN without biases in A."""

    def __init__(self, width: int, activation: str, mean: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.activation, self.mean, self.heads = activation, mean, 1

    def forward(self, h: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        score = self.query(h) @ self.key(h).mT
        weights = score.relu() if self.activation == "relu" else score.softmax(-1)
        h = self.norm1(h + (weights / h.shape[1] if self.mean else weights) @ self.value(h))
        return self.norm2(h + self.mlp(h))


class Encoder(nn.Module):
    """Bai et al.'s encoder: [x; y] per token, the query's label 0, a prediction at every token."""

    def __init__(self, d: int, width: int, layers: int, activation: str, mean: bool) -> None:
        super().__init__()
        self.read_in, self.read_out = nn.Linear(d + 1, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(EncoderBlock(width, activation, mean) for _ in range(layers))

    def forward(self, tokens: Float[Tensor, "B T D"]) -> Float[Tensor, "B T"]:
        h = self.read_in(tokens)
        for block in self.blocks:
            h = block(h)
        return self.read_out(h).squeeze(-1)


#: ours: theirs, of the parts of an encoder's block.
ENCODER = {"query": "_queries.{}", "key": "_keys.{}", "value": "_values.{}", "norm1": "_lns_1.{}", "norm2": "_lns_2.{}"}
ENCODER |= {"mlp.0": "_mlps.{}.0", "mlp.2": "_mlps.{}.2"}


def _encoder(state: dict[str, Tensor], about: Mapping[str, Any], folder: Path, where: str) -> Hooked:
    activation, mean = about.get("encoder_activation", "relu"), about.get("normalize_attn", True)
    require(activation in ("relu", "softmax"), "encoder_activation", activation, "relu or softmax")
    layers = max(count_layers(state, root) for root in ("_queries.", "_keys.", "_values.", "_lns_1.", "_mlps."))
    if layers == 0:
        raise FileError(f"{where} does not have the layout _read_in, _queries, _keys, _values, _mlps, _read_out.")
    width, d = _shape(state, "_read_in.weight", where)
    encoder = Encoder(d - 1, width, layers, str(activation), bool(mean))
    names = {f"{part}.{kind}": f"_{part}.{kind}" for part in ("read_in", "read_out") for kind in ("weight", "bias")}
    for k in range(layers):
        for ours, theirs in ENCODER.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{k}.{ours}.{kind}"] = f"{theirs.format(k)}.{kind}"
    fill(encoder, {ours: state[theirs] for ours, theirs in names.items() if theirs in state}, where)
    sites = [f"blocks.{k}" for k in range(layers)]
    return Hooked(model=encoder.eval(), inputs=pairs(), modules=sites, mask="open", readout=lambda made: made[:, -1:])
