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
from layerstep.measurement.interventions.candidates import ALL, between_of, solvers_of
from layerstep.measurement.interventions.channels import Channels
from layerstep.measurement.interventions.checks import DOSES, Passes, Site, accumulates, doses, swaps, transition
from layerstep.measurement.interventions.library import Library
from layerstep.measurement.interventions.operator import describe
from layerstep.measurement.interventions.passes import draw, gradients, states
from layerstep.measurement.interventions.result import CausalResult, Contender, LayerResult, MatchResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.measurement.interventions.search import FLOOR, SIMPLER, Match, Pairs, best_matches, read, settle, sums_of
from layerstep.measurement.reading.hooks import EditableReader, reader_of, require_causal
from layerstep.stats import interval, resamples
from layerstep.tasks import require_task
from layerstep.threads import one_thread

#: Prompts that readers are fitted on, that matches are chosen on, that they are scored on, and of finite checks.
PROMPTS = {"fit": 192, "choose": 48, "score": 96, "check": 24}
RESAMPLES = 400
#: Two matches of which one leaves at most so many times what the other leaves are told apart by T3.
TIED = 2.0
#: T3 at which predictions are added up rather than made anew; the rule's own limits lie on both sides.
ADDED = 0.85


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
    require_task(task, "lam", "gram", "sample")
    require_kind("prompts", {} if prompts is None else prompts, Mapping, f"Such as {{'fit': {PROMPTS['fit']}}}.")
    require_kind("without", without, Sequence, "Such as ['cg'].")
    require_kind("rule", rule or CausalRule(), CausalRule)
    require_callable("progress", progress or print, "a function of the fraction done")
    require_flag(checks=checks)
    for name in prompts or {}:
        require_choice("prompts", name, PROMPTS)
    counts = PROMPTS | (prompts or {})
    require_count(6, **counts)
    require_seed(seed=seed)
    reader = _editable(model)
    solvers = solvers_of(task, reader.mask)
    for name in without:
        require_choice("without", name, ALL)
    with one_thread():
        run = _Run(reader, task, seed, counts, rule or CausalRule(), checks, progress or (lambda done: None))
        return run.result([solver for solver in solvers if solver not in without])


def _editable(model: Any) -> EditableReader:
    reader = reader_of(model)
    require_kind("model", reader, EditableReader, "Its reader has no run(prompts, edits): wrap the model in ls.Hooked.")
    return reader  # type: ignore[return-value]


class _Run:
    """One run of the instrument: what every site shares."""

    def __init__(
        self,
        reader: EditableReader,
        task: Any,
        seed: int,
        counts: dict[str, int],
        rule: CausalRule,
        checks: bool,
        progress: Callable[[float], None],
    ) -> None:
        self.reader, self.task, self.seed, self.rule = reader, task, seed, rule
        self.counts, self.checks, self.progress = counts, checks, progress
        self.fit, self.choose, self.score, check = (
            draw(reader, task, counts[name], seed, stream)
            for stream, name in enumerate(("fit", "choose", "score", "check"))
        )
        self.passes = Passes(reader, task, check, seed)
        if reader.mask == "causal":
            require_causal(reader, self.fit[0].prompts[:16])

    def result(self, solvers: list[str]) -> CausalResult:
        task, reader = self.task, self.reader
        self.examples, queries, outputs = states(reader, self.fit)
        self.progress(0.15)
        known = known_inputs(self.fit)
        self.known, self.inputs = known, Inputs.of(known)
        asked = Inputs.of(known_inputs(self.fit, label=False))
        output = torch.cat(outputs)[:, None]
        self.queries, self.asked = [torch.cat(parts).double() for parts in queries], asked
        read = [align(Moments.of(torch.cat(parts), asked), asked, output).readers[:, 0] for parts in queries]
        self.chosen_on = [gradients(reader, batch, read) for batch in self.choose]
        self.scored_on = [gradients(reader, batch, read) for batch in self.score]
        self.progress(0.35)
        self.solvers = solvers
        self.library = Library(task, reader.mask, [*solvers, *between_of(task, reader.mask)], self.fit, self.choose)
        found = []
        for index in range(len(reader.sites)):
            found.append(self._search(index, self._moments(index)))
            self.progress(0.35 + 0.3 * (index + 1) / len(reader.sites))
        pairs = settle(self.library, [pairs for pairs, _ in found])
        layers, sites = [], []
        for index, (chosen, (_, reason)) in enumerate(zip(pairs, found, strict=True)):
            layer, site = self._site(index, chosen, reason)
            layers.append(layer)
            sites.append(site)
            self.progress(0.65 + 0.3 * (index + 1) / len(reader.sites))
        return CausalResult(layers=tuple(self._transitions(layers, sites)), rule=self.rule, facts=self._facts())

    def _moments(self, index: int) -> Moments:
        return Moments.of(self._states(index), self.inputs)

    def _states(self, index: int) -> Float[Tensor, "tokens W"]:
        return torch.cat([part.flatten(0, 1) for part in self.examples[index]]).double()

    def _search(self, index: int, moments: Moments) -> tuple[Pairs, str]:
        """What was found at a site, or why nothing can be."""
        J = torch.cat([each.examples[index].flatten(0, 1) for each in self.chosen_on])
        reason = _untestable(moments, J)
        channels = None if reason else Channels.of(J, moments)
        if channels is not None and not len(channels.influence):
            reason = "what varies there beside the inputs does not reach the prediction"
        pairs = {} if reason or channels is None else best_matches(self.library, channels, self._depth(index))
        if not any(match.share > 0 for pair in pairs.values() for match in pair):
            return {}, reason or "no solver's state can be read beside the inputs, or writing it changes nothing"
        return pairs, ""

    def _depth(self, index: int) -> tuple[float, float]:
        """Layers before a site and behind it."""
        stages = self.reader.stages
        return stages[index], stages[-1] - stages[index]

    def _site(self, index: int, pairs: Pairs, reason: str) -> tuple[LayerResult, Site | None]:
        name, stage = self.reader.sites[index], self.reader.stages[index]
        if not pairs:
            operators = self._operators(index, self._label_writer(index))
            return LayerResult(site=name, stage=stage, match=None, reason=reason, **operators), None
        moments = self._moments(index)
        match, ranking, stays = self._ranked(index, pairs)
        reading = read(self.library, match, moments, self.inputs)
        site = Site(
            passes=self.passes,
            name=name,
            match=match,
            reading=reading,
            moments=moments,
            inputs=torch.linalg.lstsq(self.known, self._states(index), driver="gelsd").solution,
        )
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
            doses=doses(site, DOSES if self.checks else (1.0,)),
            accumulate=stays,
            swap=swaps(site) if self.checks else None,
            **self._operators(index, match.writer),
        )
        return layer, site

    def _ranked(self, index: int, pairs: Pairs) -> tuple[Match, tuple[Contender, ...], float]:
        """The match of the site; all by what they leave of the response, it first, then the nearest; and T3.

        Their lead is that of the first over each other one by paired bootstrap.
        """
        matches = [match for pair in pairs.values() for match in pair if match.share > 0]
        scored = [each.examples[index] for each in self.scored_on]
        sums = [sums_of(self.library, match, self.score, scored) for match in matches]
        one = torch.ones(len(sums[0].Rp), dtype=torch.float64)
        weights = resamples(len(one), RESAMPLES, 0)
        left = [1 - float(each.share(one)) for each in sums]
        by_left = sorted(range(len(matches)), key=left.__getitem__)
        nearest = matches[by_left[0]].candidate
        gradient = torch.cat([each.query[index] for each in self.scored_on]).mean(0)
        stays = accumulates(self.library, nearest, self.queries[index] @ gradient, self.asked)
        form = "functional" if stays > ADDED else "dual"  # of two that leave as little the one that T3 speaks for
        for at in by_left:
            if matches[at].candidate.form == form and left[at] <= TIED * left[by_left[0]] + FLOOR:
                nearest = matches[at].candidate
                break
        first = next(at for at, match in enumerate(matches) if match is pairs[nearest.name][0])
        for at in by_left:  # the special case, where the general solver leaves nearly as much
            special = matches[at].candidate.solver == ALL[nearest.solver].special
            if special and matches[at].candidate.form == nearest.form and left[at] <= SIMPLER * left[first] + FLOOR:
                first = next(k for k, match in enumerate(matches) if match is pairs[matches[at].candidate.name][0])
                break
        order = sorted(range(len(matches)), key=lambda at: (at != first, left[at]))
        base = (1 - sums[first].share(weights)).clamp_min(FLOOR)
        found = []
        for at in order:
            candidate = matches[at].candidate
            ratio = ((1 - sums[at].share(weights)).clamp_min(FLOOR) / base).log()
            found.append(
                Contender(
                    solver=candidate.solver,
                    form=candidate.form,
                    bandwidth=candidate.v,
                    steps_left=matches[at].steps_left,
                    unexplained=left[at],
                    ratio=math.exp(float(interval(ratio, 0.98)[0])),
                    eta=self.library.typical(candidate),
                    fitted=candidate.eta is not None,
                )
            )
        return matches[first], tuple(found), stays

    def _operators(self, index: int, writer: Float[Tensor, "W"] | None) -> dict[str, Any]:
        if writer is None or not self.checks:
            return {}
        rows = [each.examples[index] @ writer for each in self.scored_on]
        found = {"to_output": describe(self.task, self.score, rows)}
        if index + 1 < len(self.reader.sites):
            rows = [each.one_on[index] @ writer for each in self.scored_on]
            found["one_layer"] = describe(self.task, self.score, rows)
        return found

    def _label_writer(self, index: int) -> Float[Tensor, "W"]:
        """Where no state is found: the writer of the label itself."""
        y = torch.cat([batch.prefix.y[:, : batch.n].flatten() for batch in self.fit]).double()[:, None]
        points = torch.cat([batch.prefix.x[:, : batch.n].flatten(0, 1) for batch in self.fit]).double()
        inputs = Inputs.of(torch.cat([points, torch.ones_like(y)], 1))
        return align(Moments.of(self._states(index), inputs), inputs, y).writers[:, 0]

    def _transitions(self, layers: list[LayerResult], sites: list[Site | None]) -> list[LayerResult]:
        """T1 between neighbours with the same candidate and no more steps left."""
        found = []
        for index, layer in enumerate(layers):
            later = layers[index + 1] if index + 1 < len(layers) else None
            here, there = sites[index], sites[index + 1] if later is not None else None
            if here is not None and there is not None and _same(here.match, there.match):
                layer = dataclasses.replace(layer, transition=transition(here, there))
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
    return a.candidate.name == b.candidate.name and a.steps_left >= b.steps_left


def _untestable(moments: Moments, J: Float[Tensor, "entries W"]) -> str:
    """Why nothing can be tested at a site, by states and gradients alone."""
    if not bool(moments.left.isfinite().all()) or not bool(J.isfinite().all()):
        return "its states or gradients are NaN or infinite"
    if moments.rank == 0:
        return "its states at the examples are a function of the token's own input"
    if not bool((J != 0).any()):
        return "what is written there does not reach the prediction"
    return ""
