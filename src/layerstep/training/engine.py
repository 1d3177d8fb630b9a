"""The engine: draw, differentiate, update. One code for every device; on CUDA the step is one captured graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.training.adamw import COLUMNS, table, update
from layerstep.training.autograd import AutogradNetwork
from layerstep.training.config import Run
from layerstep.training.gpt import GPT
from layerstep.training.muon import Muon
from layerstep.training.sampling import CHUNK, draw_chunk
from layerstep.training.schedule import context_lengths
from layerstep.training.stack import Layout, require_stackable

STREAM_SLICES = 4  # the best of 1, 2 and 4 on an H200 for one model and for four; for two within 1 % of it (LOG.md)


class Engine:
    """S runs of one shape, stacked. `advance` takes steps; `state` is all that a resumed run needs.

    Nothing in a step waits for the device: prompts, rates and the curriculum's lengths of CHUNK steps lie on the
    device, and a step reads its own by a counter that lives there too. `stream_slices` of the hand-written kernels
    fill each other's gaps; where other trainings do that, one is enough.
    """

    def __init__(
        self, runs: Sequence[Run], device: torch.device, fused: bool | None = None, stream_slices: int = STREAM_SLICES
    ) -> None:
        require_stackable(runs)
        self.runs, self.device, self.step = list(runs), device, 0
        run = runs[0]
        self.dtype = run.dtype
        require(not (self.dtype == torch.float64 and device.type == "mps"), "precision", "float64", "float32 on MPS")
        self.fused = self._choose(fused)
        gpt = GPT(run.model, run.task.d, run.task.N).to(self.dtype)
        self.layout = Layout(gpt)

        def buffer() -> Tensor:
            return torch.zeros(len(runs), self.layout.P, dtype=self.dtype, device=device)

        self.weights, self.gradient, self.mean, self.square = buffer(), buffer(), buffer(), buffer()
        for s, each in enumerate(runs):
            self.layout.load(self.weights, s, gpt.initialise(each.seed))
        if self.fused:
            from layerstep.training.fused.network import FusedNetwork

            self.network = FusedNetwork(run, self.layout, self.weights, self.gradient, stream_slices)
            self.update = self.network.update
        else:
            self.network = AutogradNetwork(gpt.to(device), self.layout, self.weights, self.gradient, run.precision)
            self.update = update
        if run.optimizer == "muon":
            half = run.precision == "bfloat16" and device.type == "cuda"
            low = self.network.low if self.fused else None  # type: ignore[union-attr]
            self.update = Muon(self.update, self.layout, low, torch.bfloat16 if half else self.dtype)
        S, B, M, d = len(runs), run.batch, run.task.N + 1, run.task.d
        make = {"dtype": self.dtype, "device": device}
        self.x, self.y = torch.zeros(CHUNK, S, B, M, d, **make), torch.zeros(CHUNK, S, B, M, **make)
        self.numbers = torch.zeros(CHUNK, S, len(COLUMNS), **make)
        open_mask = run.model.mask == "open"
        self.lengths = torch.zeros(CHUNK, S, B, dtype=torch.int32, device=device) if open_mask else None
        self.losses = torch.zeros(CHUNK, S, 2, **make)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.chunk = -1
        self.graph: torch.cuda.CUDAGraph | None = None

    def _choose(self, fused: bool | None) -> bool:
        """Whether to use the hand-written kernels: on CUDA, in bfloat16, for the shapes they know."""
        if fused is False or (fused is None and self.device.type != "cuda"):
            return False
        from layerstep.training import fused as kernels

        reason = kernels.unsupported(self.runs[0], self.device)
        require(not (fused and reason), "fused", True, f"False here: {reason}")
        return not reason

    @property
    def state(self) -> dict[str, Float[Tensor, "S P"]]:
        """What a checkpoint holds, beside the number of steps done."""
        return {"weights": self.weights, "mean": self.mean, "square": self.square}

    def restore(self, state: dict[str, Tensor], step: int) -> None:
        for name, tensor in self.state.items():
            tensor.copy_(state[name])
        self.step, self.chunk = step, -1
        self._weights_changed()

    def gpt(self, index: int) -> GPT:
        """A copy of one model as it is now, on the CPU."""
        run = self.runs[index]
        return self.layout.store(self.weights, index, GPT(run.model, run.task.d, run.task.N).to(self.dtype)).eval()

    def advance(self, steps: int) -> Float[Tensor, "C S 2"]:
        """Take up to `steps` steps, not past the end of a chunk; return their losses, still on the device."""
        chunk, start = divmod(self.step, CHUNK)
        if chunk != self.chunk:
            self._load(chunk)
        stop = min(start + steps, CHUNK)
        self.at.fill_(start)
        for _ in range(start, stop):
            self._replay()
        self.step += stop - start
        return self.losses[start:stop].clone()

    def _load(self, chunk: int) -> None:
        """Draw the prompts of a chunk and copy its table of numbers. Each run draws alone."""
        for s, run in enumerate(self.runs):
            x, y = draw_chunk(run, chunk, self.dtype, self.device)
            self.x[:, s], self.y[:, s] = x, y
        steps = range(CHUNK * chunk, CHUNK * (chunk + 1))
        self.numbers.copy_(table(self.runs, steps).to(self.dtype), non_blocking=True)
        if self.lengths is not None:
            examples = [[context_lengths(run, step) for run in self.runs] for step in steps]
            self.lengths.copy_(torch.tensor(examples, dtype=torch.int32), non_blocking=True)
        self.chunk = chunk

    def _one_step(self) -> None:
        """Read this step's prompts and numbers at the counter, differentiate, update, count."""
        x, y, numbers = (table.index_select(0, self.at).squeeze(0) for table in (self.x, self.y, self.numbers))
        n = None if self.lengths is None else self.lengths.index_select(0, self.at).squeeze(0)
        losses = self.network(x, y, numbers[:, -1], n)
        with torch.no_grad():
            self.update(self.weights, self.gradient, self.mean, self.square, numbers)
            self.losses.index_copy_(0, self.at, losses.unsqueeze(0))
            self.at += 1

    def _weights_changed(self) -> None:
        if self.fused:
            self.network.refresh()  # type: ignore[union-attr]

    def _replay(self) -> None:
        if self.device.type != "cuda":
            self._one_step()
            return
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        self.graph.replay()

    def _capture(self) -> None:
        """Run a few steps to compile and warm up, undo them, and capture one."""
        kept = {name: tensor.clone() for name, tensor in self.state.items()}
        at = self.at.clone()
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self.at.zero_()
                self._one_step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._one_step()
        for name, tensor in self.state.items():
            tensor.copy_(kept[name])
        self.at.copy_(at)
        self._weights_changed()
