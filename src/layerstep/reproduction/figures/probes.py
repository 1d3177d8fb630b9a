"""Probes fitted on the last x token alone beside probes fitted on all of them: the paper words it both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from layerstep.plotting import figure
from layerstep.reproduction.figures.trained import (
    Found,
    by_seed,
    config,
    law_lines,
    lengths,
    rows_steps,
    steps_caption,
    summary_steps,
    table_steps,
)
from layerstep.reproduction.measurements import ROOMS
from layerstep.reproduction.reference import Row
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import LAWS

#: What probes were fitted on, by the key of their numbers.
FITTED = {"all": "all x tokens", "last": "last x token"}


def last_token(found: Found) -> Artefact | None:
    """Best Richardson steps of the three laws, read by probes of all x tokens and by probes of the last one."""
    there = [name for name in LAWS if "last" in found.get(name, {})]
    if not there:
        return None
    seeds = by_seed(found) if "sphere" in there else {}

    def compute(_: Data) -> Data:
        models = {name: found[name] for name in there}
        last = {name: {**model, **model["last"]} for name, model in models.items()}
        return {"all": models, "last": last, "seeds": seeds}

    return Artefact(
        name="probes",
        title="Probes fitted on the last token alone",
        caption=(
            "What a layer would answer is read off its hidden states by a linear probe, fitted on fresh prompts. The "
            "paper describes the probes twice: in the definition of the similarity they read the state at every "
            "position n, in the details of training they map the state at the last query's x token alone. Elsewhere "
            "on this page one probe a layer is fitted on all x tokens of a prompt (left); here it is also fitted on "
            "the last one alone, which has seen all examples, and then reads the others too (right), since the "
            "similarity needs a prediction after every number of examples. Models, prompts and solvers are the same; "
            "the table says what changes. " + steps_caption([found[name] for name in there]) + lengths(there, found)
        ),
        config=config([*there, *seeds]),
        compute=compute,
        draw=draw,
        table=table,
        rows=rows,
        summary=summary,
        rooms=ROOMS,
    )


def draw(data: Data) -> Figure:
    with figure(10.4, 3.6) as fig:
        axes = fig.subplots(1, 2, sharey=True)
        for ax, (key, words) in zip(axes, FITTED.items(), strict=True):
            law_lines(ax, list(data[key].values()))
            ax.set_title(f"probes fitted on: {words}")
            ax.legend(loc="upper left")
        axes[0].set_ylim(0, 1.04 * max(ax.dataLim.ymax for ax in axes))
    return fig


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    found = {key: table_steps(data[key]) for key in FITTED}
    header = ["probes", *found["all"][0]]
    return header, [[FITTED[key], *line] for key, (_, lines) in found.items() for line in lines]


def summary(data: Data) -> tuple[list[str], list[list[str]]]:
    """R² of the four solvers and the layers most like Richardson, by model and probes."""
    header = summary_steps(data["all"])[0]
    lines = [
        [name, words, *summary_steps({name: data[key][name]})[1][0][1:], str(data[key][name]["won"]["richardson"])]
        for name in data["all"]
        for key, words in FITTED.items()
    ]
    return [header[0], "probes", *header[1:], "layers most like Richardson"], lines


def rows(data: Data) -> list[Row]:
    """The paper's numbers of the sphere once more; they are counted where the probes are those of all x tokens.

    The spread over seeds is that of probes of all x tokens: too few seeds were read by others.
    """
    if "sphere" not in data["last"]:
        return []
    found = rows_steps({"model": "sphere", "models": data["last"], "seeds": data["seeds"]})
    of_all = "; spread of seeds: that of probes of all x tokens"
    return [
        replace(row, quantity=f"{row.quantity}, probes of the last token", note=row.note + of_all, counted=False)
        for row in found
    ]
