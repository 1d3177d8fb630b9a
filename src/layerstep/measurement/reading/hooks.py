"""Readers: the hidden states of any model at its x tokens, site by site.

A reader is anything with `sites`, `stages` and `states(prompts)`. A layerstep GPT has one; for any other module,
say how prompts become its input and name the modules whose outputs are the states:

    reader = Hooked(model, inputs=lambda prompts: my_tokens(prompts), modules=["blocks.0", "blocks.1"])
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.errors import InputError, require
from layerstep.tasks import Prompts
from layerstep.training import GPT


@runtime_checkable
class Reader(Protocol):
    """states(prompts): for every site the hidden states [B, N+1, W] at the tokens x_1..x_{N+1}."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def sites(self) -> tuple[str, ...]: ...

    @property
    def stages(self) -> tuple[float, ...]:
        """Where each site lies in depth: 0 the embedding, l after block l, l - 1/2 after its attention."""
        ...

    def states(self, prompts: Prompts) -> list[Float[Tensor, "B M W"]]: ...


@dataclass(frozen=True, eq=False)
class GPTReader:
    """The residual stream of a layerstep GPT: the embedding and after every block; attention=True adds the half-way."""

    model: GPT
    attention: bool = False

    @property
    def stages(self) -> tuple[float, ...]:
        step = 1 if not self.attention else 0.5
        return tuple(step * k for k in range(round(len(self.model.blocks) / step) + 1))

    @property
    def sites(self) -> tuple[str, ...]:
        names = {0.0: "embedding"}
        return tuple(
            names.get(stage, f"block {int(stage)}" if stage == int(stage) else f"attention {int(stage + 0.5)}")
            for stage in self.stages
        )

    @torch.no_grad()
    def states(self, prompts: Prompts) -> list[Tensor]:
        states = []
        for x, block in itertools.zip_longest(self.model.stream(prompts), self.model.blocks):
            states.append(x[:, ::2])
            if self.attention and block is not None:
                states.append((x + block.attention(block.norm1(x)))[:, ::2])  # type: ignore[operator]
        return states


@dataclass(frozen=True, eq=False, kw_only=True)
class Hooked:
    """Any module: `inputs(prompts)` is what it is called with (a tensor, a tuple or a dict), `modules` name the sites.

    What `inputs` gives is brought to the precision and the device of the model, which must be in evaluation mode. The
    output of a named module (the first one, when there are several) must be [B, T, W]; `tokens` picks the x tokens out
    of T, by default every second one from the first, as in x_1, y_1, x_2, ... A module that is called k times in one
    pass, as the block of a looped transformer, is named k times: its sites are its calls, in order.
    """

    model: nn.Module
    inputs: Callable[[Prompts], Any]
    modules: Sequence[str]
    tokens: slice | Sequence[int] = field(default_factory=lambda: slice(0, None, 2))

    def __post_init__(self) -> None:
        names = self.modules
        ok = not isinstance(names, str) and len(names) > 0
        require(ok, "modules", repr(names), "a list with the names of one module or more")
        given = f"a {type(self.inputs).__name__}"
        require(callable(self.inputs), "inputs", given, "a function from prompts to what the model is called with")
        require(_picks(self.tokens), "tokens", repr(self.tokens), "a slice or a list of integers", "All: slice(None).")
        known = self._known
        for name in names:
            if name not in known:
                near = [other for other in known if other.split(".")[-1] == name.split(".")[-1]][:4]
                hint = f" Did you mean {', '.join(near)}?" if near else ""
                raise InputError(f"modules: the model has no module {name!r}.{hint} See model.named_modules().")

    @property
    def _known(self) -> dict[str, nn.Module]:
        """All modules by name; one that is shared has several."""
        return dict(self.model.named_modules(remove_duplicate=False))

    @property
    def sites(self) -> tuple[str, ...]:
        """The names, numbered where one is given several times: block #1, block #2, ..."""
        names = list(self.modules)
        return tuple(
            f"{name} #{names[: index + 1].count(name)}" if names.count(name) > 1 else name
            for index, name in enumerate(names)
        )

    @property
    def stages(self) -> tuple[float, ...]:
        return tuple(float(k) for k in range(1, len(self.modules) + 1))

    @torch.no_grad()
    def states(self, prompts: Prompts) -> list[Tensor]:
        if any(module.training for module in self.model.modules()):
            raise InputError(
                "model: is in training mode, in which dropout is random and reading changes batch statistics. "
                "Call model.eval() first."
            )
        given = _as_input(self.model, self.inputs(prompts))
        known = self._known
        modules = [known[name] for name in self.modules]
        with _recorded(modules) as calls:
            if isinstance(given, dict):
                self.model(**given)
            else:
                self.model(*given) if isinstance(given, tuple) else self.model(given)
        for name, module in zip(self.modules, modules, strict=True):
            made, named = len(calls[module]), modules.count(module)
            remedy = "Name it once for each call: each is a site." if made else "Name a module the model uses."
            require(made == named, f"modules: calls of {name} in one pass", made, f"{named}, as often as named", remedy)
        states = []
        for name, module in zip(self.sites, modules, strict=True):
            output = calls[module].pop(0)
            shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
            require(isinstance(output, Tensor) and output.ndim == 3, f"output of {name}", shape, "[B, T, W]")
            try:
                picked = output[:, self.tokens]
            except (IndexError, ValueError) as error:
                raise InputError(f"tokens = {self.tokens!r}: do not fit the {shape[1]} tokens of {name}.") from error
            right = picked.shape[:2] == (prompts.B, prompts.N + 1)
            wanted = f"{[prompts.B, prompts.N + 1]} sequences and x tokens"
            require(right, f"output of {name}", list(picked.shape[:2]), wanted, "Set tokens= to pick them.")
            states.append(picked)
        return states


def reader_of(model: Any) -> Reader:
    """The reader of a model we know, or the reader itself."""
    if isinstance(model, GPT):
        return GPTReader(model)
    if isinstance(model, Reader):
        return model
    if hasattr(model, "path"):
        raise InputError(
            f"model: a {type(model).__name__} reads out predictions by itself, without probes. Use model.path(prompts)."
        )
    raise InputError(
        f"model: a {type(model).__name__} is not one layerstep knows. Wrap it: "
        "Hooked(model=model, inputs=function from prompts to its input, modules=[names of the modules to read])."
    )


@torch.no_grad()
def require_causal(reader: Reader, prompts: Prompts) -> None:
    """Raise InputError if the state at x_{n+1} changes with y_{n+1} or a later label: probes would read their target.

    Each of 16 prompts gets other labels from a position of its own on. What is NaN is not compared, and a change that
    may be rounding is none.
    """
    prompts = prompts[torch.arange(16) % prompts.B]
    first = torch.linspace(0, prompts.N, prompts.B).round()
    position = torch.arange(prompts.N + 1)
    later = (position >= first[:, None]).to(prompts.y.device)
    y = prompts.y + later * prompts.y.square().mean().sqrt()
    pairs = zip(reader.states(prompts), reader.states(Prompts(prompts.x, y, prompts.f)), strict=True)
    for site, (before, after) in zip(reader.sites, pairs, strict=True):
        finite = before.isfinite() & after.isfinite()
        size = before.double()[finite].square().mean().sqrt()
        blind = (position <= first[:, None]).to(before.device)  # x_{n+1} comes after y_n and before y_{n+1}
        change = (after.double() - before.double()).abs()[finite & blind[..., None]]
        rounding = max(1e-5, 4 * torch.finfo(before.dtype).eps)
        if bool((change > rounding * size).any()):
            raise InputError(
                f"{site}: the state at x_{{n+1}} depends on y_{{n+1}}, which it should predict, or on a later label: "
                "the model is not causal, or tokens= picks label tokens."
            )


def _picks(tokens: object) -> bool:
    """Whether `tokens` is a slice, or integers one after the other."""
    try:
        index = tokens if isinstance(tokens, slice) else torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(index, slice) or (index.ndim == 1 and not index.is_floating_point())


def _as_input(model: nn.Module, given: Any) -> Any:
    """Tensors in a tuple, list or dictionary on the model's device, real ones in its precision."""
    if isinstance(given, dict):
        return {name: _as_input(model, part) for name, part in given.items()}
    if isinstance(given, (tuple, list)):
        return type(given)(_as_input(model, part) for part in given)
    weights = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(given, Tensor) or weights is None:
        return given
    return given.to(weights.device, weights.dtype if given.is_floating_point() else None)


def digest_of(model: nn.Module) -> str:
    """12 hex digits that name the weights, rounded to float16: a copy in half or double precision has the same."""
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        rounded = tensor.detach().to("cpu", torch.float16 if tensor.is_floating_point() else None)
        whole.update(f"{name} {list(tensor.shape)}".encode() + rounded.contiguous().numpy().tobytes())
    return whole.hexdigest()[:12]


def in_float64(reader: Reader) -> Reader:
    """The same reader of a copy of its model on the CPU in float64. What a function of the user's closes over stays."""
    twin = copy.copy(reader)
    object.__setattr__(twin, "model", copy.deepcopy(reader.model).to("cpu", torch.float64))
    return twin


@contextmanager
def _recorded(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, list[Any]]]:
    """The outputs of every module in the calls inside, one a call; copies, for the model may go on to change them."""
    outputs: dict[nn.Module, list[Any]] = {module: [] for module in modules}

    def hook(module: nn.Module, arguments: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        outputs[module].append(output.clone() if isinstance(output, Tensor) else output)

    handles = [module.register_forward_hook(hook) for module in outputs]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
