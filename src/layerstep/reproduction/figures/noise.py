"""Noise in the prompt that training did not see: the noise table without a transformer, and with ours (figure 10)."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.figures.result import Result, Table, select, trained
from layerstep.reproduction.numbers import (
    EVALUATION_SEQUENCES,
    NOISE_SEQUENCES,
    SEEDS,
    SETTINGS,
    SIGMA_TEST,
    TABLE_SEQUENCES,
    TITLES,
    ModelNoise,
    Numbers,
    Ratio,
    RidgeNoise,
)
from layerstep.reproduction.reference import NOISE_COLUMNS, NOISE_ENCODED, NOISE_TRANSFORMER, TF_OVER_EO, Comparison
from layerstep.reproduction.runs import RUNS

# Without a transformer ------------------------------------------------------------------------------------------------


def ridge(numbers: Numbers) -> Result | None:
    found = numbers.noise
    if not found:
        return None
    return Result(
        name="noise",
        title="Noise in the prompt that training did not see",
        caption=(
            "Error of kernel ridge regression that keeps the ridge of the training noise (dotted) over that of the one "
            "that knows the noise in the prompt. Crosses are the paper's numbers; the band is where 95 % of "
            f"evaluations on {EVALUATION_SEQUENCES} prompts fall. The paper's text gives its Gaussian inputs an s.d. "
            "of 0.6; its column of the table is closer to 1.0, so both are here. "
            f"Made from {TABLE_SEQUENCES:,} prompts; figures with a trained model use the first {NOISE_SEQUENCES:,} of "
            "them."
        ),
        data=found,
        draw=lambda: _draw_ridge(found),
        table=lambda: _table_ridge(found),
        comparisons=compare_ridge(found),
        code=__name__,
    )


def compare_ridge(found: dict[str, RidgeNoise]) -> tuple[Comparison, ...]:
    return tuple(
        _compare(
            each.encoded_over_optimal,
            level,
            quantity=f"encoded / Bayes-optimal error, {TITLES[setting]}, σ_test = {sigma:g}",
            paper=NOISE_ENCODED[NOISE_COLUMNS[setting]][level],
            note="no transformer needed",
            counted=setting in NOISE_ENCODED and sigma != SETTINGS[setting].sigma,  # there both are one
        )
        for setting, each in found.items()
        for level, sigma in enumerate(SIGMA_TEST)
    )


def _compare(ratio: Ratio, level: int, where: str = "noise table", **words: Any) -> Comparison:
    value, low, high = ratio.value[level], ratio.low[level], ratio.high[level]
    return Comparison(where=where, ours=value, low=low, high=high, rounding=0.005, **words)


def _draw_ridge(found: dict[str, RidgeNoise]) -> Figure:
    with figure(10.5, 3.1) as fig:
        axes = fig.subplots(1, len(found), sharey=True)
        label = f"ours, 95 % of evaluations on {EVALUATION_SEQUENCES} prompts"
        for ax, (setting, each) in zip(axes, found.items(), strict=True):
            _ratio_line(ax, each.encoded_over_optimal, BLUE, "-", label, alpha=0.18, markersize=3.5)
            ax.plot(SIGMA_TEST, NOISE_ENCODED[NOISE_COLUMNS[setting]], "x", color=ORANGE, label="paper")
            _level_axis(ax, setting)
        _ratio_axis(axes[0], "error, encoded / Bayes-optimal", 6)
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return fig


def _ratio_line(ax: Axes, ratio: Ratio, color: str, dash: str, label: str, alpha: float, markersize: float) -> None:
    ax.fill_between(SIGMA_TEST, ratio.low, ratio.high, color=color, alpha=alpha, linewidth=0)
    ax.plot(SIGMA_TEST, ratio.value, dash, color=color, marker="o", markersize=markersize, label=label)


def _level_axis(ax: Axes, setting: str) -> None:
    """Levels of noise across, with lines at that of training and at a ratio of 1."""
    ax.axhline(1, color=INK, linestyle="--", linewidth=1)
    ax.axvline(SETTINGS[setting].sigma, color=INK, linestyle=":", linewidth=1)
    ax.set(title=TITLES[setting], xlabel="noise in the prompt, σ_test", xscale="log", yscale="log")


def _ratio_axis(ax: Axes, label: str, highest: int) -> None:
    ticks = [tick for tick in (1, 2, 3, 4, 6, 10) if tick <= highest]
    ax.set_ylabel(label)
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def _table_ridge(found: dict[str, RidgeNoise]) -> Table:
    lines = [
        [setting, sigma, NOISE_ENCODED[NOISE_COLUMNS[setting]][i], *_columns(each.encoded_over_optimal, i), optimal]
        for setting, each in found.items()
        for i, (sigma, optimal) in enumerate(zip(SIGMA_TEST, each.optimal, strict=True))
    ]
    header = ["inputs", "sigma_test", "paper_EO", "EO/BO", "standard_error", "low_256", "high_256", "BO_mse"]
    return Table(header, lines)


def _columns(ratio: Ratio, level: int) -> list[float]:
    return [part[level] for part in (ratio.value, ratio.standard_error, ratio.low, ratio.high)]


# With a transformer ---------------------------------------------------------------------------------------------------

#: The levels of the snapshots (figure 10, top row), and how seeds are drawn.
SNAPSHOTS = (1e-3, 5e-2, 1.0)
SEED_LOOK: dict[str, Any] = {
    "linestyle": "", "marker": "o", "markersize": 4, "color": INK, "markerfacecolor": "none", "markeredgewidth": 0.8,
}  # fmt: skip
Noises = dict[str, ModelNoise]


def transformers(numbers: Numbers) -> Result | None:
    """The figure for those of the models that the paper's table has, and other seeds of the one on the sphere."""
    found, seeds = select(numbers.model_noise, tuple(NOISE_COLUMNS)), select(numbers.model_noise, SEEDS)
    if not found:
        return None
    circles = ", hollow circles other seeds of the model on the sphere" if seeds else ""
    return Result(
        name="noise-trained",
        title="Trained models under noise that training did not see (Figure 10)",
        caption=(
            "Error of the model's own prediction at n = 40 over that of the Bayes-optimal predictor, which knows the "
            "noise in the prompt; beside it kernel ridge regression that keeps the ridge of the training noise ("
            "encoded). Above: much less noise than in training (dotted below), as much, and much more. Bands and "
            f"whiskers: where 95 % of evaluations on {EVALUATION_SEQUENCES} prompts fall. Crosses are the paper's "
            f"transformer{circles}: with much more noise than in training the error depends mostly on the seed."
            + trained(select(numbers.models, list(found)))
        ),
        data={"models": found, "seeds": seeds},
        draw=lambda: _draw_transformers(found, seeds),
        table=lambda: _table_transformers(found),
        comparisons=compare_transformers(numbers, found, seeds),
        code=__name__,
    )


def compare_transformers(numbers: Numbers, found: Noises, seeds: Noises) -> tuple[Comparison, ...]:
    """The transformer's column of the noise table beside ours, with range over prompts and variation over seeds."""
    compared = []
    for name, noise in found.items():
        column, setting = NOISE_COLUMNS[name], TITLES[RUNS[name].setting]
        shared: dict[str, Any] = {
            "note": numbers.models[name].training,
            "counted": name == column or column not in found,
        }
        of_seeds = _of(seeds, name)
        for i, sigma in enumerate(SIGMA_TEST):
            quantity = f"transformer / Bayes-optimal error, {setting}, σ_test = {sigma:g}"
            row = _compare(noise.over_optimal, i, quantity=quantity, paper=NOISE_TRANSFORMER[column][i], **shared)
            compared.append(row.with_seeds([seed.over_optimal.value[i] for seed in of_seeds], factor=True))
        quantity, where = f"transformer / encoded error, {setting}, σ_test = 1", "Figure 10, caption"
        row = _compare(noise.over_encoded, -1, where, quantity=quantity, paper=TF_OVER_EO[column], **shared)
        compared.append(row.with_seeds([seed.over_encoded.value[-1] for seed in of_seeds], factor=True))
    return tuple(compared)


def _of(seeds: Noises, name: str) -> list[ModelNoise]:
    """Other seeds of a model."""
    return list(seeds.values()) if name == "sphere" else []


def _shown(noise: ModelNoise) -> list[tuple[Ratio, str, str, str]]:
    """What is drawn of a model: ratio, label, colour, dash."""
    encoded = (noise.encoded_over_optimal, "encoded ridge", BLUE, "--")
    return [(noise.over_optimal, "our transformer", ORANGE, "-"), encoded]


def _draw_transformers(found: Noises, seeds: Noises) -> Figure:
    """Above: three levels of noise, the input distributions side by side. Below: the whole sweep, a plot for each."""
    with figure(10.5, 5.6) as fig:
        halves: Any = fig.subfigures(2, 1, height_ratios=(1, 1.25))
        above, below = halves
        plots = above.subplots(1, len(SNAPSHOTS))
        for ax, sigma in zip(plots, SNAPSHOTS, strict=True):
            _snapshot(ax, found, seeds, SIGMA_TEST.index(sigma))
        plots[0].set_ylabel("error / Bayes-optimal error")
        axes = below.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for ax, (name, noise) in zip(axes, found.items(), strict=True):
            for ratio, label, color, dash in _shown(noise):
                _ratio_line(ax, ratio, color, dash, label, alpha=0.15, markersize=3)
            ax.plot(SIGMA_TEST, NOISE_TRANSFORMER[NOISE_COLUMNS[name]], "x", color=INK, label="the paper's transformer")
            for seed in _of(seeds, name):
                ax.plot(SIGMA_TEST, seed.over_optimal.value, label="other seeds, short schedule", **SEED_LOOK)
            _level_axis(ax, RUNS[name].setting)
        _ratio_axis(axes[0], "error / Bayes-optimal error", 10)
        handles, labels = axes[0].get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        below.legend(once.values(), once.keys(), loc="outside lower center", ncols=len(once))
    return fig


def _snapshot(ax: Axes, found: Noises, seeds: Noises, level: int) -> None:
    """One level of noise: a point and its range for every model."""
    for at, (name, noise) in enumerate(found.items()):
        for shift, (ratio, _, color, _) in zip((-0.12, 0.12), _shown(noise), strict=True):
            value, low, high = ratio.value[level], ratio.low[level], ratio.high[level]
            reach = [[max(value - low, 0)], [max(high - value, 0)]]
            ax.errorbar([at + shift], [value], reach, fmt="o", color=color, capsize=2)
        ax.plot(at - 0.12, NOISE_TRANSFORMER[NOISE_COLUMNS[name]][level], "x", color=INK, zorder=3)
        for seed in _of(seeds, name):
            ax.plot(at - 0.3, seed.over_optimal.value[level], **SEED_LOOK)
    ax.axhline(1, color=INK, linestyle="--", linewidth=1)
    ticks = [TITLES[RUNS[name].setting].replace(", ", ",\n") for name in found]
    ax.set_xticks(range(len(found)), ticks, fontsize=7.5)
    ax.set(title=f"σ_test = {SIGMA_TEST[level]:g}", xlim=(-0.5, len(found) - 0.5))
    ax.grid(axis="x", visible=False)


def _table_transformers(found: Noises) -> Table:
    lines = []
    for name, noise in found.items():
        ratios = (noise.over_optimal, noise.encoded_over_optimal, noise.over_encoded)
        for i, (sigma, paper) in enumerate(zip(SIGMA_TEST, NOISE_TRANSFORMER[NOISE_COLUMNS[name]], strict=True)):
            lines.append([name, sigma, paper, *(value for ratio in ratios for value in _columns(ratio, i))])
    parts = ("value", "standard_error", "low_256", "high_256")
    keys = [f"{key} {part}" for key in ("TF/BO", "EO/BO", "TF/EO") for part in parts]
    return Table(["model", "sigma_test", "paper_TF", *keys], lines)
