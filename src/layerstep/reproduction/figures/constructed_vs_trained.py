"""Written transformers in the plots of the trained ones: what the paper's metrics say of weights that are known."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from layerstep.construction import construct
from layerstep.files import digest
from layerstep.plotting import BLUE, GREEN, INK, ORANGE, figure
from layerstep.reproduction.figures.convergence import error_axis, name_exact
from layerstep.reproduction.figures.panels import r2_words, trajectory
from layerstep.reproduction.figures.trained import Found, summary_steps, table_steps
from layerstep.reproduction.measurements import errors, similarity
from layerstep.reproduction.result import Artefact, Data, kept
from layerstep.reproduction.settings import SETTINGS, evaluation_prompts
from layerstep.tasks import Trajectory

ROOMS = ("tasks", "solvers", "construction", "measurement", "reproduction")
SETTING, LAYERS = "sphere", 12
#: Written networks by name: scheme, blocks counted as one layer, label.
WRITTEN = {
    "written-1": ("exact", 1, "written, one Richardson step a layer"),
    "written-5": ("exact", 5, "written, five Richardson steps a layer"),
    "written-chebyshev": ("compact", 1, "written, one Chebyshev step a layer"),
}
LOOKS = {"written-1": (GREEN, ":"), "written-5": (BLUE, "--"), "written-chebyshev": ("#CC79A7", "-.")}


def numbers(folder: Path) -> dict[str, Data]:
    """What `measured.compute` says of a trained model, of the written ones; from `folder` where it is there."""
    of = {"written": WRITTEN, "setting": SETTING, "layers": LAYERS}
    return kept(folder / "measured" / "written.json", of, ROOMS, compute)[0]["data"]


def compute() -> Data:
    paths = {scheme: _path(scheme) for scheme in ("exact", "compact")}
    found = {}
    for name, (scheme, stride, label) in WRITTEN.items():
        whole = paths[scheme]
        at = [whole.stages.tolist().index(stride * layer) for layer in range(LAYERS + 1)]
        path = Trajectory(whole.values[at], list(range(LAYERS + 1)), label)
        inner = Trajectory(path.values[1:], path.stages[1:], label)
        found[name] = {
            "model": name,
            "label": label,
            "setting": SETTING,
            **errors(path, SETTING),
            **similarity(inner, SETTING),
        }
    return found


def _path(scheme: str) -> Trajectory:
    """The read-out of a written network after every block that is a layer of one of WRITTEN."""
    task = SETTINGS[SETTING]
    strides = [stride for kind, stride, _ in WRITTEN.values() if kind == scheme]
    stages = sorted({stride * layer for stride in strides for layer in range(LAYERS + 1)})
    eta = 1.0 if scheme == "exact" else None
    network = construct(task.d, task.N, task.v, task.lam, scheme=scheme, L=stages[-1], eta=eta)
    return network.path(evaluation_prompts(SETTING), stages=stages)


def artefact(found: Found, written: dict[str, Data]) -> Artefact:
    """Error and best Richardson step by layer: the trained model on the sphere, where it is here, and the written."""
    trained = {"sphere": {**found["sphere"], "label": "trained"}} if "sphere" in found else {}
    shown = {**trained, **written}
    other = written["written-chebyshev"]["solvers"]["richardson"]["r2"]
    return Artefact(
        name="written-beside-trained",
        title="Trained and written, in the same plots (ours)",
        caption=(
            "Left: error by layer with 40 examples. Right: the Richardson step most similar to each layer. A written "
            "transformer that takes one Richardson step a block gives a straight line, R² = 1: this is what the "
            "paper's claim would look like. The one that takes Chebyshev steps, another solver, has "
            f"R² = {other:.3f}: a straight line alone names no solver."
        ),
        config={"shown": digest(shown)},
        compute=lambda _: shown,
        draw=draw,
        table=table_steps,
        summary=summary,
        rooms=ROOMS,
    )


def draw(data: Data) -> Figure:
    with figure(10.8, 3.6) as fig:
        left, right = fig.subplots(1, 2)
        for name, model in data.items():
            color, dash = LOOKS.get(name, (ORANGE, "-"))
            words = f"{model['label']}, R² = {r2_words(model['solvers']['richardson']['r2'])}"
            left.plot(model["layers"], model["layer_mse"][-1], dash, color=color, marker="o", markersize=3)
            trajectory(right, model, "richardson", label=words, color=color, dash=dash)
        krr = next(iter(data.values()))["krr"][-1]
        left.axhline(krr, color=INK, linestyle="--", linewidth=1)
        left.set(xlabel="layer")
        error_axis(left)
        name_exact(left, krr)
        right.set_ylabel("best-matching Richardson step")
        fig.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def summary(data: Data) -> tuple[list[str], list[list[str]]]:
    header, lines = summary_steps(data)
    won = [f"{model['won']['richardson']} of {len(model['layers']) - 1}" for model in data.values()]
    lines = [[data[line[0]]["label"], *line[1:], count] for line, count in zip(lines, won, strict=True)]
    return [*header, "layers most like Richardson"], lines
