"""What of other published claims? The field's metric on paths that are known, and on models trained here."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from layerstep.plotting import INK, LOOKS, Look, figure
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import LinearModel, Numbers, PlantedPath

#: As many as there are planted paths.
MANY = (*LOOKS, Look("#777777", "--"), Look("#777777", ":"))
METRIC = ["SimE to Newton", "best Newton step per layer, R²", "nearer Newton than GD", "our verdict", "its schedule"]


def planted(numbers: Numbers) -> Result | None:
    """Paths of known solvers under the metric that names Newton."""
    found = numbers.planted_paths
    if not found:
        return None
    return Result(
        name="claims-planted",
        title="Similar to Newton, and linear in its steps: only one of these seven is Newton's",
        caption=(
            "Linear regression, d = 20, N = 40, no noise. Solvers run on known schedules in place of layers, and are "
            "read as trained models are: for every layer the most similar step of iterative Newton (SimE), and the "
            "line through these steps. A line, and a win over gradient descent with one step size, do not tell Newton "
            "from what is not. The verdict is that of the instrument, whose error rates are known."
        ),
        data=found,
        draw=lambda: _draw_planted(found),
        table=lambda: Table(
            ["path", "class", "layer", "best step of Newton", "verdict"],
            [
                [each.name, each.truth, layer, step, each.solver or each.status]
                for each in found
                for layer, step in enumerate(each.best_step, 1)
            ],
        ),
        summary=Table(
            ["what it is", *METRIC],
            [[each.name, *_metric(each, 12), each.solver or each.status, each.schedule or "–"] for each in found],
        ),
        code=__name__,
    )


def _metric(found: PlantedPath | LinearModel, of: int) -> list[str]:
    line = "–" if found.slope is None or found.r2 is None else f"{found.slope:.2f}, {found.r2:.3f}"
    return [f"{found.sime:.3f}", line, f"{found.nearer_newton} of {of}"]


def _draw_planted(found: Sequence[PlantedPath]) -> Figure:
    with figure(6.4, 3.2) as fig:
        ax = fig.subplots()
        for (color, dash), each in zip(MANY, found, strict=True):
            layers = range(1, len(each.best_step) + 1)
            ax.plot(layers, each.best_step, dash, color=color, linewidth=1.4, label=f"{each.name}, R² {each.r2:.3f}")
        ax.set(xlabel="layer", ylabel="most similar step of Newton")
        ax.legend(fontsize=7.5)
    return fig


def trained(numbers: Numbers) -> Result | None:
    """Models trained here: error by n beside the best there is, and the same columns."""
    found = {name: model for name, model in numbers.linear_models.items() if model.learned}
    if not found:
        return None
    return Result(
        name="claims-trained",
        title="Trained here on linear regression: error, the same metric, and what they are found to do",
        caption=(
            "Error against the noiseless answer by number of examples, over that with none (grey: the best there is, "
            "where labels have noise). The table: error over the best at n = N, the metric of the planted paths, what "
            "the instrument says of the probes' predictions (U: what the nearest class leaves of the way to the exact "
            "answer, V: the part of it that has a pattern)."
        ),
        data=found,
        draw=lambda: _draw_trained(found),
        table=lambda: Table(
            ["model", "n", "error", "best"],
            [
                [name, n, error, best]
                for name, model in found.items()
                for n, (error, best) in enumerate(zip(model.mse, model.best, strict=True))
            ],
        ),
        summary=_summary(found),
        code=__name__,
    )


def _draw_trained(found: dict[str, LinearModel]) -> Figure:
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    least = min(min(model.mse) / model.mse[0] for model in found.values())
    with figure(max(3.2, 2.2 * columns), 0.8 + 1.6 * lines) as fig:
        axes = fig.subplots(lines, columns, sharey=True, squeeze=False).flatten()
        for ax, (name, model) in zip(axes, found.items(), strict=False):
            best = [max(each / model.mse[0], 1e-6) for each in model.best]
            ax.plot(best, color="#777777", linewidth=2.2, alpha=0.6)
            ax.plot([each / model.mse[0] for each in model.mse], color=LOOKS[0].color)
            ax.axvline(_dimension(model), color=INK, linewidth=0.6, linestyle=":")
            ax.set_title(name.replace("-", " "), fontsize=8)
            ax.set(yscale="log", ylim=(max(1e-6, 0.2 * least), 2))
        for ax in axes[len(found) :]:
            ax.remove()
        fig.supxlabel("examples n (dotted: n = d)", fontsize=8)
        fig.supylabel("error, n = 0 is 1", fontsize=8)
    return fig


def _dimension(model: LinearModel) -> int:
    return int(model.task.partition("d=")[2].partition(",")[0])


def _summary(found: dict[str, LinearModel]) -> Table:
    lines = []
    for name, model in found.items():
        over = f"{model.over_best:.2f}" if model.over_best else f"{model.mse[-1] / model.mse[0]:.1e} of n = 0"
        said = model.verdict.solver or f"{model.verdict.status} (nearest {model.verdict.nearest})"
        left = " ".join("–" if each is None else f"{each:.3f}" for each in (model.verdict.U, model.verdict.V))
        about = f"{model.model}; σ = {model.sigma:g}" + (f", pool of {model.pool:,}" if model.pool else "")
        lines.append([name, about, over, *_metric(model, model.of), said, model.schedule or "–", left])
    header = ["model", "what it is", "error over the best", *METRIC, "U, V"]
    return Table(header, lines)
