"""Edits: replace the state of a site in one forward pass and see what the rest of the model makes of it.

recording = reader.run(prompts, edits={"block 3": lambda h: h + delta})
recording["block 5"]     # [B, T, W], all tokens, with the edit applied upstream
recording.output         # what the model itself returned
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.errors import InputError, quoted, require, require_callable, require_kind
from layerstep.reprs import brief

#: From the state of a site [B, T, W], all tokens, to the state that replaces it.
Edit = Callable[[Tensor], Tensor]
COMPILED = "model: is compiled, and a compiled module may skip hooks. Pass the module before compiling."


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording(Sequence[Tensor]):
    """One forward pass: the state [B, T, W] of every site after its edit, by number or by name, and the output."""

    sites: tuple[str, ...]
    states: tuple[Float[Tensor, "B T W"], ...]
    output: Any

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.states)

    @overload
    def __getitem__(self, site: int | str) -> Tensor: ...
    @overload
    def __getitem__(self, site: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, site: int | str | slice) -> Tensor | tuple[Tensor, ...]:
        return self.states[find_site(self.sites, site) if isinstance(site, str) else site]


def find_site(sites: Sequence[str], name: Any, argument: str = "site") -> int:
    """The number of the site called `name`, or an InputError that proposes the nearest."""
    if name in sites:
        return list(sites).index(name)
    near = difflib.get_close_matches(str(name), sites, n=3) or list(sites[:4])
    raise InputError(f"{argument}: the reader has no site {quoted(name)}. Did you mean {', '.join(near)}?")


def check_edits(sites: Sequence[str], edits: Any) -> list[Edit | None]:
    """The edit of every site, None where there is none."""
    require_kind("edits", edits, Mapping, "Pass a dictionary: {site: function from its state to the new one}.")
    by_site: list[Edit | None] = [None] * len(sites)
    for name, edit in edits.items():
        require_callable(f"edits[{name!r}]", edit, "a function from the state [B, T, W] to the new one")
        by_site[find_site(sites, name, "edits")] = edit
    return by_site


def apply_edit(site: str, edit: Edit | None, state: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
    """edit(a copy of the state), of the same shape, precision and device; the state itself where there is no edit."""
    if edit is None:
        return state
    changed = edit(state.clone())
    wanted = f"a function that returns the new state, a tensor {list(state.shape)}"
    returned = list(changed.shape) if isinstance(changed, Tensor) else quoted(changed)
    remedy = "Return the state after changing it in place." if changed is None else "An edit sees all tokens at once."
    ok = isinstance(changed, Tensor) and changed.shape == state.shape
    require(ok, f"edits[{site!r}]", f"one that returns {returned}", wanted, remedy)
    return changed.to(state)


def require_hookable(model: nn.Module) -> None:
    """Raise InputError if forward hooks of `model` may be skipped or its passes may differ: compiled, or training."""
    for module in model.modules():
        compiled = hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        if compiled or isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                "model: is compiled, and a compiled module may skip hooks. Pass the module before compiling."
            )
        if module.training:
            raise InputError(
                "model: is in training mode, in which dropout is random and reading changes batch statistics. "
                "Call model.eval() first."
            )


@contextmanager
def recorded(
    modules: Sequence[nn.Module], sites: Sequence[str], edits: Sequence[Edit | None]
) -> Iterator[dict[nn.Module, list[Any]]]:
    """The outputs of every module in the calls inside, in order, after their edits. Hooks are removed at the end.

    modules: that of each site; a module named k times is k sites, its first k calls. What is kept is a copy, for the
    model may go on to change its own.
    """
    outputs: dict[nn.Module, list[Any]] = {module: [] for module in modules}
    calls = {module: [k for k, other in enumerate(modules) if other is module] for module in outputs}

    def hook(module: nn.Module, arguments: Any, output: Any) -> Any:
        state = output[0] if isinstance(output, tuple) else output
        made = len(outputs[module])
        if not isinstance(state, Tensor) or made >= len(calls[module]):
            outputs[module].append(state)
            return None
        site = calls[module][made]
        edit = edits[site]
        if edit is not None and state.ndim == 3:
            state = apply_edit(sites[site], edit, state)
            output = _with_first(output, state)
        outputs[module].append(state.clone())
        return output

    handles = [module.register_forward_hook(hook) for module in outputs]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _with_first(output: Any, state: Tensor) -> Any:
    """The output of a module with its state replaced: itself, or the first entry of a tuple."""
    if not isinstance(output, tuple):
        return state
    if hasattr(output, "_fields"):
        return output._replace(**{output._fields[0]: state})  # type: ignore[attr-defined]
    return (state, *output[1:])
