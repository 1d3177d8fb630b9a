"""python -m layerstep.measurement.calibration.controls.trainer --out results/controls: train all controls, stacked.

A network's loss is that of its states along the fixed directions after every layer, of its output, and of both after an
intervention at a random layer: states replaced, in half of the prompts everything else replaced as well. Targets are
the solver's own states, going on from what was written. Needs what training needs and no other package.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import as_device
from layerstep.files import provenance, write_json
from layerstep.measurement.calibration.controls.lessons import Lesson, Units, lesson, stacked
from layerstep.measurement.calibration.controls.mechanism import COLUMNS as STATE_COLUMNS
from layerstep.measurement.calibration.controls.mechanism import SCALE, supervised
from layerstep.measurement.calibration.controls.network import STATE, Edit, Stacked, directions, initialise
from layerstep.measurement.calibration.controls.suite import Control, controls
from layerstep.training import GPT
from layerstep.training.adamw import COLUMNS, table, update
from layerstep.training.stack import Layout

CHUNK = 32  # steps whose lessons are drawn at once
TERMS = ("states", "output", "states after", "output after")
FLOOR = 0.25  # a step between layers counts as at least this part of the largest state: late steps must not drown all
SYNC = 8  # chunks between looks at the clock
KIND = "layerstep-control"


class Trainer:
    """Controls of one mask and shape in training: one buffer of weights, one captured step on CUDA."""

    def __init__(self, members: Sequence[Control], device: torch.device) -> None:
        self.members, self.device, self.step = list(members), device, 0
        self.runs = [each.run for each in members]
        run = members[0].run
        gpt = GPT(run.model, run.task.d, run.task.N)
        self.layout = Layout(gpt)
        S, L = len(members), run.model.layers

        def buffer() -> Tensor:
            return torch.zeros(S, self.layout.P, device=device)

        self.weights, self.gradient, self.mean, self.square = buffer(), buffer(), buffer(), buffer()
        for s, each in enumerate(members):
            self.layout.load(self.weights, s, initialise(gpt, each.run.seed))
        frames = torch.stack([directions(gpt, each.run.seed) for each in members]).float().to(device)
        self.network = Stacked(gpt, self.layout, self.weights, frames)
        self.units = [Units.of(each).to(device) for each in members]
        self.weight = torch.stack([_weights(*pair) for pair in zip(members, self.units, strict=True)], 1).to(device)
        self.after = torch.tensor([float(each.mechanism is not None) for each in members], device=device)
        self.open = members[0].mask == "open"
        self.mean_terms = torch.zeros(S, len(TERMS), device=device)
        self.errors = torch.zeros(2, L, S, STATE, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.numbers = torch.zeros(CHUNK, S, len(COLUMNS), device=device)
        self.lessons: Lesson | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def advance(self, total: int) -> None:
        """CHUNK steps of a schedule of `total`."""
        chunk = self.step // CHUNK
        drawn = stacked(
            [lesson(c, u, CHUNK, chunk, self.device) for c, u in zip(self.members, self.units, strict=True)]
        )
        if self.lessons is None:
            self.lessons = drawn
        for mine, new in zip(self.lessons, drawn, strict=True):
            mine.copy_(new)
        self.runs = [replace(each.run, steps=total, warmup=min(each.run.warmup, total // 10)) for each in self.members]
        steps = range(self.step, self.step + CHUNK)
        self.numbers.copy_(table(self.runs, steps).float())
        self.at.zero_()
        for _ in steps:
            self._replay()
        self.step += CHUNK

    def _replay(self) -> None:
        if self.device.type != "cuda":
            self._one_step()
            return
        if self.graph is None:
            self._capture()
        assert self.graph is not None
        self.graph.replay()

    def _capture(self) -> None:
        """Warm up on a stream of its own, undo it, capture one step."""
        kept = [tensor.clone() for tensor in (self.weights, self.mean, self.square)]
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
        for tensor, value in zip((self.weights, self.mean, self.square), kept, strict=True):
            tensor.copy_(value)
        self.mean_terms.zero_()
        self.errors.zero_()
        self.at.zero_()

    def _one_step(self) -> None:
        assert self.lessons is not None
        now = Lesson(**{
            name: tensor.index_select(0, self.at).squeeze(0)
            for name, tensor in zip(Lesson.__dataclass_fields__, self.lessons, strict=True)
        })  # fmt: skip
        numbers = self.numbers.index_select(0, self.at).squeeze(0)
        terms, errors = self.terms(now)
        names = [name for name in self.layout.slots if name not in self.network.frozen]
        slopes = torch.autograd.grad(terms.sum(), [self.network.parameters[name] for name in names])
        with torch.no_grad():
            for name, slope in zip(names, slopes, strict=True):
                self.layout.view(self.gradient, name).copy_(slope)
            update(self.weights, self.gradient, self.mean, self.square, numbers)
            self.mean_terms.lerp_(terms.detach(), 0.01)
            self.errors.lerp_(errors.detach(), 0.01)
            self.at += 1

    def terms(self, now: Lesson) -> tuple[Float[Tensor, "S 4"], Float[Tensor, "2 L S 4"]]:
        """The four parts of each control's loss, and the squared errors of states by layer, in units of a step."""
        asked, place, mask = self._places(now.tokens)
        wanted, wanted_after = now.clean.transpose(0, 1), now.swapped.transpose(0, 1)
        L = len(self.weight)
        count = place.sum((1, 2)).clamp_min(1)  # [S, 4]
        states, head = self.network(now.tokens, mask)
        at = torch.arange(L, device=self.device)[:, None, None, None, None]
        here = (at == now.layer[..., None, None]).float()  # [L, S, B, 1, 1]
        holds = (self.weight > 0)[:, :, None, None, :].clone()
        holds[..., SCALE] = False  # a part of the problem: nothing is written there
        edit = Edit(
            gate=here * place * holds, value=now.value, mix=here * now.mix[..., None, None] if self.open else None
        )
        edited, head_after = self.network(now.tokens, mask, edit)
        later = (at > now.layer[..., None, None]).float()
        clean = ((states - wanted).square() * place).sum((2, 3)) / count * self.weight
        # What follows a swap may be larger than any state of the solver itself: errors count in its own size then.
        large = ((wanted_after.square() * place * later).sum((2, 3)) / count).clamp_min(1)
        after = ((edited - wanted_after).square() * place * later).sum((2, 3)) / count * self.weight / large
        per_query = asked / asked.sum((1, 2), keepdim=True)
        output = ((head - now.answer).square() * per_query).sum((1, 2))
        large = (now.swapped_answer.square() * per_query).sum((1, 2)).clamp_min(1)
        output_after = ((head_after - now.swapped_answer).square() * per_query).sum((1, 2)) / large
        terms = [clean.mean((0, 2)), output, after.mean((0, 2)), output_after * self.after]
        return torch.stack(terms, 1), torch.stack([clean, after])

    def _places(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens that predict [S, B, T], tokens that hold each column [S, B, T, 4], and what each token sees."""
        S, B, T, _ = tokens.shape
        index = torch.arange(T, device=tokens.device)
        if self.open:
            asked, dummy = tokens[..., -1] > 0, tokens[..., -2] > 0
            example, scale = ~asked & ~dummy, ~dummy
            mask = ~asked[:, :, None, :] | torch.eye(T, dtype=torch.bool, device=tokens.device)
        else:
            asked = (index % 2 == 0).expand(S, B, T)
            example = scale = ((index % 2 == 1) & (index < T - 1)).expand(S, B, T)
            mask = (index[:, None] >= index).expand(S, B, T, T)
        return asked.float(), torch.stack([example, example, scale, asked], dim=-1).float(), mask

    def gpt(self, index: int) -> GPT:
        run = self.members[index].run
        return self.layout.store(self.weights, index, GPT(run.model, run.task.d, run.task.N)).eval()

    def report(self, layers: bool = True) -> list[str]:
        """A line for each control: the four parts of its loss, and the states' errors by layer."""
        lines = []
        for s, each in enumerate(self.members):
            terms = " ".join(f"{value:8.1e}" for value in self.mean_terms[s].tolist())
            lines.append(f"{each.name:<31}{terms}" + (f" {_by_layer(self.errors[:, :, s])}" if layers else ""))
        return lines

    def save(self, folder: Path, seconds: float) -> None:
        """A directory for each control: the model in float16, and what is true of it."""
        where = provenance(str(self.device))
        for s, (each, units) in enumerate(zip(self.members, self.units, strict=True)):
            run = self.runs[s]
            about = {"run": run.to_dict(), "step": self.step, "control": each.name, "provenance": where}
            self.gpt(s).save_pretrained(folder / each.name, dtype=torch.float16, about=about)
            write_json(
                folder / each.name / "control.json", self._facts(s, units) | {"steps": self.step, "seconds": seconds}
            )

    def _facts(self, s: int, units: Units) -> dict:
        each, L = self.members[s], len(self.weight)
        truth = None
        if each.mechanism is not None:
            truth = {
                "solver": each.mechanism.solver,
                "form": each.mechanism.form,
                "class": type(each.mechanism).__name__,
                "parameters": {name: getattr(each.mechanism, name) for name in each.mechanism.__dataclass_fields__},
                "held": supervised(each.mechanism, L).tolist(),
            }
        return {
            "format": KIND,
            "name": each.name,
            "kind": each.kind,
            "mask": each.mask,
            "task": each.run.task.to_dict(),
            "seed": each.run.seed,
            "mechanism": truth,
            "columns": list(STATE_COLUMNS),
            "directions": self.network.frames[s, :STATE].tolist(),
            "units": units.size.tolist(),
            "state_rms": units.rms.tolist(),
            "step_rms": units.step.tolist(),
            "losses": dict(zip(TERMS, self.mean_terms[s].tolist(), strict=True)),
            "errors": {"clean": self.errors[0, :, s].tolist(), "after": self.errors[1, :, s].tolist()},
        }


def _by_layer(errors: Float[Tensor, "2 L 4"]) -> str:
    clean, after = errors.amax(-1).tolist()
    return "| " + " ".join(f"{e:.0e}" for e in clean) + " | " + " ".join(f"{e:.0e}" for e in after)


def _weights(control: Control, units: Units) -> Float[Tensor, "L 4"]:
    """1 / (size of a step)² where a column holds a state, 0 elsewhere."""
    if control.mechanism is None:
        return torch.zeros_like(units.rms)
    held = supervised(control.mechanism, len(units.rms)).to(units.rms.device)
    return torch.where(held, units.step.clamp_min(FLOOR) ** -2, 0.0)


def train(
    members: Sequence[Control], device: torch.device, seconds: float, steps: int, say: Callable[[str], None] = print
) -> list[Trainer]:
    """Train controls of all masks in turn, for `steps` steps or as many as fit into `seconds`."""
    began = time.monotonic()
    masks = list(dict.fromkeys(each.mask for each in members))
    classes = [Trainer([each for each in members if each.mask == mask], device) for mask in masks]
    chunk, total, reported, mark = 0, steps // CHUNK, began, began
    while chunk < total:
        for each in classes:
            each.advance(total * CHUNK)
        chunk += 1
        if chunk > SYNC and chunk % SYNC:
            continue
        if device.type == "cuda":
            torch.cuda.synchronize()
        now = time.monotonic()
        if chunk == SYNC // 4:  # compiled and warm
            mark = now
        if chunk == SYNC:
            pace = (now - mark) / (SYNC - SYNC // 4)
            total = min(total, chunk + int((began + seconds - now) / pace))
            say(f"{1000 * pace / CHUNK:.2f} ms per step of {len(members)} controls, {total * CHUNK} steps")
        if now - reported > seconds / 6:
            reported = now
            say(f"step {chunk * CHUNK}, {now - began:.0f} s")
            say("\n".join(line for each in classes for line in each.report(layers=False)))
        if now - began > 1.03 * seconds:
            say(f"time is up after {chunk * CHUNK} steps of {total * CHUNK}")
            break
    return classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where a directory for each control is written")
    parser.add_argument("--seconds", type=float, default=480.0, help="stop and save after this time")
    parser.add_argument("--steps", type=int, default=60_000, help="at most so many steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=None)
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="train these controls only")
    parser.add_argument("--small", action="store_true", help="5 layers, width 64, N = 12, d = 2: for a CPU")
    args = parser.parse_args()
    device = as_device(args.device)
    torch.set_float32_matmul_precision("high")
    began = time.monotonic()
    size = {"layers": 5, "width": 64, "N": 12, "d": 2, "batch": 32} if args.small else {}
    for each in train(controls(args.only, seed=args.seed, **size), device, args.seconds, args.steps):
        each.save(args.out, time.monotonic() - began)
        print("\n".join(each.report()))


if __name__ == "__main__":
    main()
