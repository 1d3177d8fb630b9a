"""Readers: the hidden states of any model, site by site, read and edited.

A GPT has one; for any other module say how prompts become its input, and name the modules whose outputs are the states:

    reader = Hooked(model=model, inputs=lambda prompts: my_tokens(prompts), modules=["blocks.0", "blocks.1"])
    reader.states(prompts)                                          # at the x tokens, for probes
    reader.run(prompts, edits={"blocks.0": lambda h: 2 * h})        # at all tokens, with edits
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.errors import InputError, quoted, require, require_choice, require_kind
from layerstep.measurement.reading.edits import (
    COMPILED,
    Edit,
    Recording,
    apply_edit,
    check_edits,
    recorded,
    require_hookable,
)
from layerstep.reprs import brief
from layerstep.tasks import Prompts
from layerstep.training import GPT

NO_EDITS: Mapping[str, Edit] = MappingProxyType({})
#: By mask, where the x tokens are and where the labels are known.
TOKENS = {"causal": (slice(0, None, 2), slice(1, -1, 2)), "open": (slice(-1, None), slice(0, -1))}


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


@runtime_checkable
class EditableReader(Reader, Protocol):
    """A reader that also writes: one forward pass over whole prompts, recorded at all tokens, with edits applied."""

    @property
    def mask(self) -> str:
        """ "causal": one pass answers every context length. "open": every token sees all, one pass for each length."""
        ...

    @property
    def queries(self) -> slice | Sequence[int]:
        """The tokens x_1..x_{N+1} (causal), or the one that asks (open)."""
        ...

    @property
    def examples(self) -> slice | Sequence[int]:
        """The tokens at which y_1..y_N are known."""
        ...

    def run(self, prompts: Prompts, edits: Mapping[str, Edit] = ...) -> Recording: ...

    def predictions(self, recording: Recording) -> Float[Tensor, "B Q"]:
        """The model's own predictions at the queries."""
        ...


@dataclass(frozen=True, eq=False)
class GPTReader:
    """The residual stream of a GPT: the embedding and after every use of a block; attention=True adds the half-way.

    normed=True reads the last state after the final norm, as GPT-2's `hidden_states` (Fu et al.'s probes) have it.
    """

    model: GPT
    attention: bool = False
    normed: bool = False

    __repr__ = brief

    @property
    def stages(self) -> tuple[float, ...]:
        step = 1 if not self.attention else 0.5
        return tuple(step * k for k in range(round(len(self.model.uses) / step) + 1))

    @property
    def sites(self) -> tuple[str, ...]:
        names = {0.0: "embedding"} | ({float(len(self.model.uses)): "final norm"} if self.normed else {})
        return tuple(
            names.get(stage, f"block {int(stage)}" if stage == int(stage) else f"attention {int(stage + 0.5)}")
            for stage in self.stages
        )

    @property
    def mask(self) -> str:
        return self.model.model.mask

    @property
    def queries(self) -> slice:
        return TOKENS[self.mask][0]

    @property
    def examples(self) -> slice:
        # The last token asks, the first of an open mask is a dummy.
        return slice(1, -1, 2 if self.mask == "causal" else 1)

    @torch.no_grad()
    def states(self, prompts: Prompts) -> list[Tensor]:
        require_kind("prompts", prompts, Prompts)
        if self.mask == "causal":
            return [state[:, self.queries] for state in self.run(prompts).states]
        lengths = (first_points(prompts, n + 1) for n in range(prompts.N + 1))
        by_length = [[state[:, self.queries] for state in self.run(prefix).states] for prefix in lengths]
        return [torch.cat(states, dim=1) for states in zip(*by_length, strict=True)]

    def run(self, prompts: Prompts, edits: Mapping[str, Edit] = NO_EDITS) -> Recording:
        """States [B, T, W] of all sites at all tokens, edits applied; the output is the predictions at the queries."""
        require_kind("prompts", prompts, Prompts)
        remaining = iter(zip(self.sites, check_edits(self.sites, edits), strict=True))
        states: list[Tensor] = []

        def passed(state: Tensor) -> Tensor:
            states.append(apply_edit(*next(remaining), state))
            return states[-1]

        x, mask = self.model.embed(self.model.tokens(prompts))
        embedded = x = passed(x)
        for use, block in enumerate(self.model.uses, 1):
            x = block.attend(self.model.enter(use - 1, x, embedded), mask)
            x = passed(x) if self.attention else x
            x = block.feed(x)
            x = passed(self.model.norm(x) if self.normed and use == len(self.model.uses) else x)
        output = self.model.read_out(x[:, self.model.asked]).squeeze(-1) if self.normed else self.model.head(x)
        return Recording(sites=self.sites, states=tuple(states), output=output if mask is None else output[:, -1:])

    def predictions(self, recording: Recording) -> Tensor:
        return recording.output


@dataclass(frozen=True, eq=False, kw_only=True)
class Hooked:
    """Any module: `inputs(prompts)` is what it is called with (a tensor, a tuple or a dict), `modules` name the sites.

    What `inputs` gives is brought to the precision and the device of the model, which must be in evaluation mode. The
    output of a named module (the first one, when there are several) must be [B, T, W]; `tokens` picks the x tokens out
    of T, by default every second one from the first, as in x_1, y_1, x_2, ... A module that is called k times in one
    pass, as the block of a looped transformer, is named k times: its sites are its calls, in order.

    For interventions: `examples` picks the tokens at which the labels y_1..y_N are known, `readout` makes predictions
    [B, N+1] at the x tokens of what the model returns (by default the returned tensor itself). mask="open": every
    token sees all others, so each context length is a forward pass of its own, whose last token asks: `inputs` is
    called with the first n+1 points, one token per pair and the query last.
    """

    model: nn.Module
    inputs: Callable[[Prompts], Any]
    modules: Sequence[str]
    tokens: slice | Sequence[int] | None = None
    examples: slice | Sequence[int] | None = None  # type: ignore[assignment]
    readout: Callable[[Any], Tensor] | None = None
    mask: Literal["causal", "open"] = "causal"

    __repr__ = brief

    def __post_init__(self) -> None:
        names = self.modules
        require_kind("model", self.model, nn.Module)
        ok = isinstance(names, Sequence) and not isinstance(names, str) and len(names) > 0
        ok = ok and all(isinstance(name, str) for name in names)
        require(ok, "modules", quoted(names), "a list with the names of one module or more")
        given = f"a {type(self.inputs).__name__}"
        require(callable(self.inputs), "inputs", given, "a function from prompts to what the model is called with")
        require_choice("mask", self.mask, list(TOKENS))
        for argument, default in zip(("tokens", "examples"), TOKENS[self.mask], strict=True):
            if getattr(self, argument) is None:
                object.__setattr__(self, argument, default)
            value = getattr(self, argument)
            require(_picks(value), argument, repr(value), "a slice or a list of integers", "All: slice(None).")
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

    @property
    def queries(self) -> slice | Sequence[int]:
        return self.tokens  # type: ignore[return-value]

    @torch.no_grad()
    def states(self, prompts: Prompts) -> list[Tensor]:
        require_kind("prompts", prompts, Prompts)
        if self.mask == "causal":
            return self._picked(self.run(prompts), prompts.N + 1, prompts)
        lengths = (first_points(prompts, n + 1) for n in range(prompts.N + 1))
        by_length = [self._picked(self.run(prefix), 1, prefix) for prefix in lengths]
        return [torch.cat(states, dim=1) for states in zip(*by_length, strict=True)]

    def run(self, prompts: Prompts, edits: Mapping[str, Edit] = NO_EDITS) -> Recording:
        """One forward pass: states [B, T, W] of all sites at all tokens, edits applied, and what the model returned."""
        require_kind("prompts", prompts, Prompts)
        wanted = check_edits(self.sites, edits)
        require_hookable(self.model)
        given = _as_input(self.model, self._inputs_of(prompts))
        known = self._known
        modules = [known[name] for name in self.modules]
        with recorded(modules, self.sites, wanted) as calls:
            if isinstance(given, dict):
                output = self.model(**given)
            else:
                output = self.model(*given) if isinstance(given, tuple) else self.model(given)
        for name, module in zip(self.modules, modules, strict=True):
            made, named = len(calls[module]), modules.count(module)
            remedy = "Name it once for each call: each is a site." if made else "Name a module the model uses."
            require(made == named, f"modules: calls of {name} in one pass", made, f"{named}, as often as named", remedy)
        states = tuple(calls[module].pop(0) for module in modules)
        for name, state in zip(self.sites, states, strict=True):
            shape = list(state.shape) if isinstance(state, Tensor) else type(state).__name__
            require(isinstance(state, Tensor) and state.ndim == 3, f"output of {name}", shape, "[B, T, W]")
        return Recording(sites=self.sites, states=states, output=output)

    def _inputs_of(self, prompts: Prompts) -> Any:
        try:
            return self.inputs(prompts)
        except Exception as error:
            problem = f"raised {type(error).__name__}: {error}"
            raise InputError(f"inputs: {problem}. It must turn Prompts into what the model is called with.") from error

    def predictions(self, recording: Recording) -> Tensor:
        made = recording.output if self.readout is None else self.readout(recording.output)
        picked = self._pick(recording.sites[-1], recording[-1])
        shape = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        remedy, wanted = "Set readout= to make them of what the model returns.", list(picked.shape[:2])
        require(shape == wanted, "predictions", shape, f"{wanted}, one per query", remedy)
        return made

    def _picked(self, recording: Recording, count: int, prompts: Prompts) -> list[Tensor]:
        """The states of all sites at the x tokens, `count` of them."""
        states = []
        for name, state in zip(self.sites, recording.states, strict=True):
            picked = self._pick(name, state)
            right = picked.shape[:2] == (prompts.B, count)
            wanted = f"{[prompts.B, count]} sequences and x tokens"
            require(right, f"output of {name}", list(picked.shape[:2]), wanted, "Set tokens= to pick them.")
            states.append(picked)
        return states

    def _pick(self, name: str, state: Tensor) -> Tensor:
        try:
            return state[:, self.tokens]
        except (IndexError, ValueError) as error:
            raise InputError(f"tokens = {self.tokens!r}: do not fit the {state.shape[1]} tokens of {name}.") from error


def reader_of(model: Any) -> Reader:
    """The reader of a model we know, or the reader itself."""
    if isinstance(model, GPT):
        return GPTReader(model)
    if isinstance(model, Reader):
        return model
    if isinstance(getattr(model, "_orig_mod", None), GPT):
        raise InputError(COMPILED)
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


def first_points(prompts: Prompts, points: int) -> Prompts:
    """The first points of every sequence; one point is a query without examples, which `Prompts` does not take."""
    x, y = prompts.x[:, :points], prompts.y[:, :points]
    f = None if prompts.f is None else prompts.f[:, :points]
    if points > 1:
        return Prompts(x, y, f)
    alone = object.__new__(Prompts)
    alone.__dict__.update(x=x, y=y, f=f)
    return alone


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
