"""layerstep publish runs/sphere sphere: from a finished run to its place in results/models.

Errors by context length beside exact KRR, predictions and probes for the figures, a thinned log, a card, and the
weights in float16. Needs what training needs and no other package, so that it can run where the model was trained.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerstep.errors import FileError, require_choice
from layerstep.files import provenance, read_json, write_json, write_text
from layerstep.folders.layout import CONFIG, EVALUATION, LOG, SNAPSHOTS
from layerstep.folders.layout import RUNS as RUNS_FILE
from layerstep.folders.survey import Begun, unit_of
from layerstep.reproduction.probing import predict
from layerstep.reproduction.runs import RUNS, preset_of
from layerstep.training import GPT, Run, evaluate
from layerstep.training.directory import Trained
from layerstep.training.evaluation import Evaluation

#: Prompts of the errors on the card.
ON_CARD = {"B": 2048, "seed": 1234}
SHARD_BYTES = 10_000_000
LOG_RECORDS = 250


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What evaluation.json says of a published model; `seconds` of training, stacked with `stack`, beside `shared`."""

    identity: str
    evaluation: Evaluation
    snapshots: dict[str, Evaluation]
    seconds: float
    stack: list[str]
    shared: list[str]
    provenance: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        snapshots = {name: found.to_dict() for name, found in self.snapshots.items()}
        return {**vars(self), "evaluation": self.evaluation.to_dict(), "snapshots": snapshots}


def publish_run(
    trained: Path,
    name: str,
    folder: Path | None = None,
    *,
    weights: bool = True,
    prompts: int = 38_400,
    shared: Sequence[str] = (),
) -> Path:
    """Write what the paper's figures need of the run in `trained` to `folder` (results/models/name unless given).

    shared: runs of other shapes that were trained on the same device at the same time, so that it took longer.
    """
    require_choice("name", name, tuple(RUNS))
    folder = folder or RUNS[name].folder
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = Trained.read(trained)
    run = found.run
    if found.step != run.steps:
        raise FileError(f"{trained} holds step {found.step} of {run.steps}. Finish it: layerstep train ... --resume.")
    gpt = GPT.from_pretrained(trained)
    if weights:  # what is measured below is what is stored
        gpt.save_pretrained(folder, dtype=torch.float16, shard_bytes=SHARD_BYTES, about=found.about)
        gpt = GPT.from_pretrained(folder, device=device)
    else:
        for old in folder.glob("model*.safetensors*"):  # of a run that was here before
            old.unlink()
        write_json(folder / CONFIG, read_json(trained / CONFIG))
        gpt = gpt.to(device)
    predictions, probes = predict(gpt, RUNS[name].setting, prompts=prompts, last=True)
    probes.save(folder / "probes.safetensors")
    predictions.save(folder)
    stack, log = _log(trained, run)
    snapshots = sorted((trained / SNAPSHOTS).glob("step-*"))
    facts = Facts(
        identity=run.identity,
        evaluation=evaluate(gpt, run.task, **ON_CARD),
        snapshots={
            path.name: evaluate(GPT.from_pretrained(path, device=device), run.task, **ON_CARD) for path in snapshots
        },
        seconds=log[-1]["seconds"],
        stack=stack,
        shared=list(shared),
        provenance=provenance(device),
    )
    write_json(folder / EVALUATION, facts.to_dict())
    thin = log[-1 :: -max(1, len(log) // LOG_RECORDS)][::-1]
    write_text(folder / LOG, "".join(json.dumps(record) + "\n" for record in thin))
    write_text(folder / "README.md", card(name, run, facts, parameters=sum(p.numel() for p in gpt.parameters())))
    return folder


def _log(trained: Path, run: Run) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the runs trained stacked, and this one's part of their log."""
    home = unit_of(trained)
    begun = Begun.read(home)
    if begun is None:
        raise FileError(f"{home / RUNS_FILE} does not say which runs were trained there. Train it again.")
    runs = [Run.from_dict(values) for values in begun.runs]
    at = runs.index(run)
    names = [each.name for each in runs]
    records = [json.loads(line) for line in (home / LOG).read_text(encoding="utf-8").splitlines()]
    mine = [{key: value[at] if isinstance(value, list) else value for key, value in r.items()} for r in records]
    return names, [
        {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in record.items()}
        for record in mine
    ]


def _schedule(run: Run) -> str:
    """How long and how fast a run trains, in words."""
    if preset := preset_of(run):
        return f"the preset `{preset}`"
    return f"{run.steps:,} steps at rate {run.lr:g}"


def card(name: str, run: Run, facts: Facts, parameters: int) -> str:
    """The model's card: what it is, how it was trained, how good it is."""
    task, model, evaluation = run.task, run.model, facts.evaluation
    rows = {int(step.removeprefix("step-")): found for step, found in facts.snapshots.items()}
    rows[run.steps] = evaluation
    table = "\n".join(
        f"| {step:,} | {found.mse[-1]:.4f} | {found.krr[-1]:.4f} | {found.ratio:.3f} |" for step, found in rows.items()
    )
    spread = f", s.d. {task.input_std:g}" if task.inputs == "gaussian" else ""
    beside = f" stacked with {len(facts.stack) - 1} more" if len(facts.stack) > 1 else ""
    beside += f", the GPU shared with {len(facts.shared)} of other shapes," if facts.shared else ""
    where, prompts = facts.provenance, f"ls.sample(task, {evaluation.B}, seed={evaluation.seed})"
    heads = f"{model.heads} heads" if model.heads > 1 else "1 head"
    shape = f"{model.layers} layers, {heads}, width {model.width}, {parameters:,} parameters"
    return f"""---
license: apache-2.0
library_name: layerstep
tags: [in-context-learning, gaussian-process, regression, interpretability]
---
# {name}: a decoder trained on Gaussian-process prompts

- Model: {shape}, {model.attention} attention.
- Task: inputs {task.inputs}{spread}, d = {task.d}; {task.kernel} kernel, v = {task.v:g}; label noise sigma = {task.sigma:g}; up to {task.N} examples.
- Training: {_schedule(run)}, seed {run.seed}, identity `{run.identity}`.
- Machine: {facts.seconds:.0f} s{beside} on {where["device"]}, torch {where["torch"]}.

Errors at n = {task.N} against the noiseless function beside exact kernel ridge regression, on the same {evaluation.B:,} prompts,
`{prompts}`; `evaluation.json` has them for every n:

| steps | model | exact KRR | ratio |
|---|---|---|---|
{table}

- `predictions.safetensors`: the probes' readings of every layer on the 256 evaluation prompts, the head's under noise;
  `last`: readings of probes fitted on the last x token alone.
- `probes.safetensors`: the probes. `log.jsonl`: the run's log, thinned.
- Weights, where they are here, are stored in float16; the last row of the table is theirs.
"""  # noqa: E501
