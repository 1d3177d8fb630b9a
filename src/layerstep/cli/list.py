"""layerstep list: the names that options take, each with a line about it."""

from __future__ import annotations

from typing import Literal

from layerstep.cli.output import Output, table


def run(
    what: Literal["all", "solvers", "kernels", "inputs", "families", "presets", "models"] = "all",
    /,
) -> Output:
    """Print the names that options take.

    Args:
        what: solvers (with the names of the literature), kernels, inputs, families (the classes that identify
            compares with), presets (of train), models (inside the package), or all.
    """
    if what == "solvers":
        return solvers_and_names()
    made = {name: lister() for name, lister in LISTS.items() if what in (name, "all")}
    parts = [table(columns, rows, title=name, words=True) for name, (columns, rows) in made.items()]
    data = {name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in made.items()}
    return Output(data if what == "all" else data[what], parts)


Rows = tuple[list[str], list[list[str]]]


def solvers_and_names() -> Output:
    """Every solver, and which name of the literature is which."""
    from layerstep.solvers.names import LITERATURE, literature

    columns, rows = _solvers()
    fields = ("literature", "name", "what", "same")
    data = {
        "solvers": [dict(zip(("name", "label", "needs"), row, strict=True)) for row in rows],
        "literature": [dict(zip(fields, row, strict=True)) for row in LITERATURE],
    }
    return Output(data, [table(columns, rows, words=True), literature()])


def _solvers() -> Rows:
    from layerstep.solvers import SOLVERS

    rows = [[name, solver.label, ", ".join(sorted(solver.needs))] for name, solver in SOLVERS.items()]
    return ["name", "solver", "needs of the kernel"], rows


def _kernels() -> Rows:
    from layerstep.tasks import KERNELS
    from layerstep.tasks.kernels import WITH_PARAMETERS

    shown = {name: f"{name}:..." if name in WITH_PARAMETERS else name for name in KERNELS}
    return ["name", "kernel"], [[shown[name], _first_line(kernel)] for name, kernel in KERNELS.items()]


def _inputs() -> Rows:
    from layerstep.tasks import INPUTS

    return ["name", "inputs"], [[name, _first_line(draw)] for name, draw in INPUTS.items()]


def _families() -> Rows:
    from layerstep.measurement import FAMILIES

    kinds: dict[str, list[str]] = {}
    for family in FAMILIES:
        kinds.setdefault(family.kind, []).append(family.name)
    return ["class", "families"], [[kind, ", ".join(names)] for kind, names in kinds.items()]


def _presets() -> Rows:
    from layerstep.training import PRESETS

    rows = []
    for name, run in PRESETS.items():
        task, model = run.task, run.model
        kind = f"{getattr(task, 'type', '') or 'gp'}, {getattr(task, 'inputs', '')} inputs, d = {task.d}, N = {task.N}"
        rows.append([name, kind, f"{model.layers} layers of width {model.width}", f"{run.steps:,}"])
    return ["name", "task", "model", "steps"], rows


def _models() -> Rows:
    from layerstep.training import GPT, SHIPPED

    return ["name", "model"], [[name, repr(GPT.from_pretrained(folder))] for name, folder in SHIPPED.items()]


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


LISTS = {
    "solvers": _solvers,
    "kernels": _kernels,
    "inputs": _inputs,
    "families": _families,
    "presets": _presets,
    "models": _models,
}
