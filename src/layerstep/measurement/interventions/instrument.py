"""The causal instrument: from a model and a task to what its layers do, by writing into them.

result = intervene(model, task)       # a GPT, or any reader that writes (Hooked)
result.claims                         # solver, form, steps left; or nothing
result.layers[3].one_layer            # the measured operator, always
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require_callable, require_choice, require_count, require_flag, require_kind, require_seed
from layerstep.measurement.interventions.alignment import Inputs, Moments, align, known_inputs
from layerstep.measurement.interventions.baselines import p_value
from layerstep.measurement.interventions.candidates import BETWEEN, SOLVERS
from layerstep.measurement.interventions.checks import DOSES, Site, doses, swaps, transition
from layerstep.measurement.interventions.operator import describe
from layerstep.measurement.interventions.passes import draw, gradients, states
from layerstep.measurement.interventions.result import CausalResult, Contender, LayerResult, MatchResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.measurement.interventions.search import Library, Match, Sums, best_matches, read, sums_of
from layerstep.measurement.reading.hooks import EditableReader, reader_of, require_causal
from layerstep.stats import interval, resamples
from layerstep.tasks import Task
from layerstep.threads import one_thread

#: Prompts that readers are fitted on, that matches are chosen on, that they are scored on, and of finite checks.
PROMPTS = {"fit": 192, "choose": 48, "score": 96, "check": 24}
RESAMPLES = 400


def intervene(
    model: Any,
    task: Any,
    *,
    seed: int = 0,
    prompts: dict[str, int] | None = None,
    rule: CausalRule | None = None,
    without: Sequence[str] = (),
    checks: bool = True,
    progress: Callable[[float], None] | None = None,
) -> CausalResult:
    """Find which solver's state each site of `model` holds, by writing it and watching the prediction.

    prompts: how many to fit, choose, score and check on (PROMPTS). without: solvers to leave out of the search.
    checks=False leaves out what no claim needs: doses other than 1, swaps, operators.
    """
    require_kind("task", task, Task, "Interventions are about Gaussian-process tasks")
    require_kind("prompts", {} if prompts is None else prompts, Mapping, f"Such as {{'fit': {PROMPTS['fit']}}}.")
    require_kind("without", without, Sequence, "Such as ['cg'].")
    require_kind("rule", rule or CausalRule(), CausalRule)
    require_callable("progress", progress or print, "a function of the fraction done")
    require_flag(checks=checks)
    for name in prompts or {}:
        require_choice("prompts", name, PROMPTS)
    for name in without:
        require_choice("without", name, [solver for solvers in SOLVERS.values() for solver in solvers])
    counts = PROMPTS | (prompts or {})
    require_count(6, **counts)
    require_seed(seed=seed)
    reader = _editable(model)
    with one_thread():
        run = _Run(reader, task, seed, counts, rule or CausalRule(), checks, progress or (lambda done: None))
        return run.result([solver for solver in SOLVERS[reader.mask] if solver not in without])


def _editable(model: Any) -> EditableReader:
    reader = reader_of(model)
    require_kind("model", reader, EditableReader, "Its reader has no run(prompts, edits): wrap the model in ls.Hooked.")
    return reader  # type: ignore[return-value]


class _Run:
    """One run of the instrument: what every site shares."""

    def __init__(
        self,
        reader: EditableReader,
        task: Task,
        seed: int,
        counts: dict[str, int],
        rule: CausalRule,
        checks: bool,
        progress: Callable[[float], None],
    ) -> None:
        self.reader, self.task, self.seed, self.rule = reader, task, seed, rule
        self.counts, self.checks, self.progress = counts, checks, progress
        self.fit, self.choose, self.score, self.check = (
            draw(reader, task, counts[name], seed, stream)
            for stream, name in enumerate(("fit", "choose", "score", "check"))
        )
        if reader.mask == "causal":
            require_causal(reader, self.fit[0].prompts[:16])

    def result(self, solvers: list[str]) -> CausalResult:
        task, reader = self.task, self.reader
        examples, queries, outputs = states(reader, self.fit)
        self.progress(0.15)
        known = known_inputs(self.fit)
        self.known, self.inputs = known, Inputs.of(known)
        asked = Inputs.of(known_inputs(self.fit, label=False))
        output = torch.cat(outputs)[:, None]
        at_query = [align(Moments.of(torch.cat(parts), asked), asked, output) for parts in queries]
        read = [each.readers[:, 0] for each in at_query]
        self.chosen_on = [gradients(reader, batch, read) for batch in self.choose]
        self.scored_on = [gradients(reader, batch, read) for batch in self.score]
        self.progress(0.35)
        self.solvers = solvers
        self.library = Library(task, reader.mask, [*solvers, *BETWEEN[reader.mask]], self.fit, self.choose)
        layers, sites = [], []
        for index, name in enumerate(reader.sites):
            h = torch.cat([part.flatten(0, 1) for part in examples[index]]).double()
            layer, site = self._site(index, name, h, at_query[index].writers[:, 0])
            layers.append(layer)
            sites.append(site)
            self.progress(0.35 + 0.6 * (index + 1) / len(reader.sites))
        return CausalResult(layers=tuple(self._transitions(layers, sites)), rule=self.rule, facts=self._facts())

    def _site(
        self, index: int, name: str, h: Float[Tensor, "tokens W"], query_writer: Float[Tensor, "W"]
    ) -> tuple[LayerResult, Site | None]:
        stage = self.reader.stages[index]
        moments = Moments.of(h, self.inputs)
        chosen = [each.examples[index] for each in self.chosen_on]
        scored = [each.examples[index] for each in self.scored_on]
        J = torch.cat([each.flatten(0, 1) for each in chosen])
        reason = _untestable(moments, h, J)
        matches = [] if reason else best_matches(self.library, moments, J)
        matches = [match for match in matches if match.share > 0]
        if not matches:
            reason = reason or "no solver's state can be read beside the inputs, or writing it changes nothing"
            operators = self._operators(index, self._label_writer(h))
            return LayerResult(site=name, stage=stage, match=None, reason=reason, **operators), None
        sums = [sums_of(self.library, match, self.score, scored) for match in matches]
        order, ranking = _ranked(matches, sums)
        match = matches[order[0]]
        reading = read(self.library, match, moments, self.inputs)
        site = Site(
            reader=self.reader,
            task=self.task,
            name=name,
            match=match,
            reading=reading,
            moments=moments,
            inputs=torch.linalg.lstsq(self.known, h, driver="gelsd").solution,
        )
        accumulate = torch.cat([each.query[index] for each in self.scored_on]) @ query_writer
        layer = LayerResult(
            site=name,
            stage=stage,
            match=MatchResult(
                ranking=ranking,
                channels=len(match.weights),
                read_step=reading.step,
                state_explained=reading.explained,
                gain=reading.gain,
            ),
            p_value=p_value(self.library, match, moments, self.inputs, self.seed),
            doses=doses(site, self.check, self.seed, DOSES if self.checks else (1.0,)),
            accumulate=float(accumulate.mean()),
            swap=swaps(site, self.check, self.seed) if self.checks else None,
            **self._operators(index, match.writer),
        )
        return layer, site

    def _operators(self, index: int, writer: Float[Tensor, "W"] | None) -> dict[str, Any]:
        if writer is None or not self.checks:
            return {}
        rows = [each.examples[index] @ writer for each in self.scored_on]
        found = {"to_output": describe(self.task, self.score, rows)}
        if index + 1 < len(self.reader.sites):
            rows = [each.one_on[index] @ writer for each in self.scored_on]
            found["one_layer"] = describe(self.task, self.score, rows)
        return found

    def _label_writer(self, h: Float[Tensor, "tokens W"]) -> Float[Tensor, "W"]:
        """Where no state is found: the writer of the label itself."""
        y = torch.cat([batch.prefix.y[:, : batch.n].flatten() for batch in self.fit]).double()[:, None]
        points = torch.cat([batch.prefix.x[:, : batch.n].flatten(0, 1) for batch in self.fit]).double()
        inputs = Inputs.of(torch.cat([points, torch.ones_like(y)], 1))
        return align(Moments.of(h, inputs), inputs, y).writers[:, 0]

    def _transitions(self, layers: list[LayerResult], sites: list[Site | None]) -> list[LayerResult]:
        """T1 between neighbours with the same candidate and fewer steps left."""
        found = []
        for index, layer in enumerate(layers):
            later = layers[index + 1] if index + 1 < len(layers) else None
            here, there = sites[index], sites[index + 1] if later is not None else None
            if here is not None and there is not None and _same(here.match, there.match):
                layer = dataclasses.replace(layer, transition=transition(here, there, self.check, self.seed))
            found.append(layer)
        return found

    def _facts(self) -> dict[str, Any]:
        return {
            "task": self.task.to_dict(),
            "mask": self.reader.mask,
            "seed": self.seed,
            "prompts": self.counts,
            "solvers": sorted(self.solvers),
            "lengths": [batch.n for batch in self.score],
        }


def _same(a: Match, b: Match) -> bool:
    return a.candidate.name == b.candidate.name and a.steps_left > b.steps_left


def _untestable(moments: Moments, h: Float[Tensor, "tokens W"], J: Float[Tensor, "entries W"]) -> str:
    """Why nothing can be tested at a site, by states and gradients alone."""
    if not bool(h.isfinite().all()) or not bool(J.isfinite().all()):
        return "its states or gradients are NaN or infinite"
    if moments.rank == 0:
        return "its states at the examples are a function of the token's own input"
    if not bool((J != 0).any()):
        return "what is written there does not reach the prediction"
    return ""


def _ranked(matches: list[Match], sums: list[Sums]) -> tuple[list[int], tuple[Contender, ...]]:
    """The matches by what they leave of the response; the lead of the first over each other one by paired bootstrap."""
    one = torch.ones(len(sums[0].Rp), dtype=torch.float64)
    weights = resamples(len(one), RESAMPLES, 0)
    left = [1 - float(each.share(one)) for each in sums]
    order = sorted(range(len(matches)), key=left.__getitem__)
    floor = 1e-9
    base = (1 - sums[order[0]].share(weights)).clamp_min(floor)
    found = []
    for index in order:
        candidate = matches[index].candidate
        ratio = ((1 - sums[index].share(weights)).clamp_min(floor) / base).log()
        found.append(
            Contender(
                solver=candidate.solver,
                form=candidate.form,
                bandwidth=candidate.v,
                steps_left=matches[index].steps_left,
                unexplained=left[index],
                ratio=math.exp(float(interval(ratio, 0.98)[0])),
            )
        )
    return order, tuple(found)
