"""Models with an open mask, trained on labels: how their loss went, and what is said of them beside causal ones."""

from __future__ import annotations

from statistics import median

from matplotlib.figure import Figure

from layerstep.plotting import LOOKS, figure
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import DISTRIBUTIONS, TITLES, Numbers, OpenMask, WrittenInto


def training(numbers: Numbers) -> Result | None:
    found = numbers.open_mask
    if not found:
        return None
    return Result(
        name="open-mask",
        title="Under an open mask: training, error, and what is written into the layers",
        caption=(
            "The loss while the default model with an open mask is trained on labels (the same schedule for all). On "
            "the sphere it falls and then rises: these two models are worse than the best that training passed, and "
            "say little about what a well-trained one would do. The table has them beside the causal models: error at "
            "n = 40 over that of exact kernel ridge regression; whether a solver is claimed; what the nearest leaves "
            "of the response, the median over layers."
        ),
        data={"open": found, "written into": {name: each.result for name, each in numbers.interventions.items()}},
        draw=lambda: _draw(found),
        table=lambda: Table(
            ["model", "step", "loss"],
            [
                [name, step, loss]
                for name, each in found.items()
                for step, loss in zip(each.steps, each.loss, strict=True)
            ],
        ),
        summary=_summary(numbers),
        code=__name__,
    )


def _draw(found: dict[str, OpenMask]) -> Figure:
    with figure(6.4, 3.0) as fig:
        ax = fig.subplots()
        for (color, dash), (name, each) in zip(LOOKS, found.items(), strict=False):
            steps = [step / 1000 for step in each.steps]
            ax.plot(steps, each.loss, dash, color=color, linewidth=1.3, label=_words(name, each))
        ax.set(xlabel="training steps, thousands", ylabel="loss", ylim=(0.2, 0.5))
        ax.legend(ncols=2, loc="upper right")
    return fig


def _words(name: str, each: OpenMask) -> str:
    seed = f", seed {name[-1]}" if "seed" in name else ""
    return TITLES[each.inputs] + seed


def _summary(numbers: Numbers) -> Table:
    lines = []
    for name, opened in numbers.open_mask.items():
        words = f"open mask, {_words(name, opened)}"
        lines.append([words, f"{opened.over_krr:.3f}", *_said(numbers.interventions.get(name))])
    for name in DISTRIBUTIONS:
        if (model := numbers.models.get(name)) is not None:
            words = f"causal mask, {TITLES[name]}"
            lines.append([words, f"{model.over_krr:.3f}", *_said(numbers.interventions.get(name))])
    return Table(["model", "error over KRR", "written into", "the nearest solver leaves"], lines)


def _said(network: WrittenInto | None) -> list[str]:
    """What is claimed, and what the nearest solver leaves of the response."""
    if network is None:
        return ["its weights are not here", ""]
    left = network.left
    return [network.claimed or "no claim", f"{median(left):.0%}"] if left else ["cannot be tested", ""]
