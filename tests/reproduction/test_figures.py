"""Results: made from any subset of the runs, with known answers where models are planted; whole files or none."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from layerstep.errors import FileError
from layerstep.plotting import figure
from layerstep.reproduction import runs
from layerstep.reproduction.claims.findings import key_findings
from layerstep.reproduction.figures import capacity, constructed, errors, noise, similarity, solvers, steps
from layerstep.reproduction.figures.result import Result, Table, model_title
from layerstep.reproduction.figures.verdicts import draw_verdicts
from layerstep.reproduction.numbers import ModelNoise, ModelNumbers, ModelVerdict, Numbers
from layerstep.reproduction.numbers.constructed import compute_schemes, compute_walk
from layerstep.reproduction.numbers.measurements import compute_model
from layerstep.reproduction.numbers.noise import Ratio, compute_ridge_noise
from layerstep.reproduction.numbers.solvers import compute_conditioning, compute_curves, compute_precision
from layerstep.reproduction.reference import Comparison
from layerstep.reproduction.runs import DEEP, RUNS, SEEDS
from layerstep.reproduction.settings import DISTRIBUTIONS, SIGMA_TEST, TITLES

ARMS = {
    "attention": (lambda found: errors.attention(found, "linear"), ("linear-uniform", "linear-sphere"), 2 * 6),
    "attention-mean": (lambda found: errors.attention(found, "linear-mean"), ("linear-mean-gaussian",), 6),
    "kernel": (steps.by_kernel, ("sphere", "arccos1"), 2),
    "kernel grid": (similarity.kernels, ("sphere", "arccos1"), 8 + 1),
    "depth": (steps.by_depth, ("sphere-24",), 1),
    "heads": (capacity.heads, ("heads-1", "heads-4", "sphere"), 2),
    "width": (capacity.width, ("width-32", "width-512", "sphere-fast"), 2),
    "seeds": (steps.by_seed, ("sphere-fast", "sphere-fast-seed-2"), 2),
    "inputs": (steps.by_inputs, ("sphere", "gaussian"), 1),
    "probes": (steps.by_probe, ("uniform", "sphere", "sphere-fast", "sphere-fast-seed-1"), 2),
    "grid": (lambda found: similarity.of_solvers(found, DISTRIBUTIONS, "inputs", "5"), ("sphere", "uniform"), 8 + 1),
    "deep grid": (lambda found: similarity.of_solvers(found, DEEP, "depth", "Figure 7"), DEEP, 8 + 1),
    "heat": (lambda found: similarity.heat(found, "sphere", "Figure 2a"), ("sphere",), 1 + 1),
    "steps": (lambda found: steps.of_model(found, "sphere", "Figure 2b"), ("sphere", "sphere-fast"), 1),
    "errors": (lambda found: errors.of_model(found, "sphere-24", "Figure 6a"), ("sphere-24",), 5),
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory, plant):
    """Numbers of every run, those of two planted models under all names, and solver curves."""
    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    numbers = {}
    for name in ("sphere", "sphere-24"):
        plant(name, stride=5)
        numbers[RUNS[name].run.model.layers] = compute_model(name)
    models = {}
    for name, run in RUNS.items():
        model: ModelNumbers = numbers[run.run.model.layers]
        words = {"name": name, "setting": run.setting, "training": f"{run.run.steps} steps"}
        last = model.alignment if name in DISTRIBUTIONS else None
        models[name] = replace(model, **words, trained_steps=run.run.steps, last_token=last)
    curves = {name: compute_curves(name, 30, 4) for name in (*DISTRIBUTIONS, "arccos1", "sphere-v2")}
    yield Numbers(models=models, curves=curves)
    patch.undo()


def some(numbers, names):
    return replace(numbers, models={name: numbers.models[name] for name in names})


def check(result, plots=None):
    """A result can be drawn and tabulated."""
    assert isinstance(result, Result)
    assert plots is None or len(result.draw().axes) == plots
    header, lines = result.table()
    assert lines
    assert {len(line) for line in lines} == {len(header)}
    if result.summary:
        header, lines = result.summary
        assert {len(line) for line in lines} == {len(header)}
        assert all(isinstance(cell, str) for line in lines for cell in line)


@pytest.mark.parametrize("arm", ARMS)
def test_a_figure_is_made_from_the_models_that_are_here(everything, arm):
    make, names, plots = ARMS[arm]
    check(make(some(everything, names)), plots)


@pytest.mark.parametrize("arm", list(ARMS))
def test_no_figure_is_made_of_nothing(arm):
    assert ARMS[arm][0](Numbers()) is None


ALONE = {
    "curves": (lambda _: solvers.convergence(_, "sphere"), {"curves": {"sphere": compute_curves("sphere", 5, 2)}}, 4),
    "conditioning": (solvers.conditioning, {"conditioning": compute_conditioning(3, 5)}, 1),
    "precision": (solvers.precision, {"cg_precision": compute_precision(2, 4)}, 1),
    "noise": (noise.ridge, {"noise": compute_ridge_noise(8, 5)}, 4),
    "walk": (constructed.walk, {"walk": compute_walk(4, 7, 0.1)}, 4),
    "schemes": (constructed.schemes, {"schemes": compute_schemes(3, 2, 3)}, 1),
}  # fmt: skip


@pytest.mark.parametrize("arm", ALONE)
def test_results_without_a_model(arm):
    make, numbers, plots = ALONE[arm]
    check(make(Numbers(**numbers)), plots)
    assert make(Numbers()) is None


def useless(model):
    """All layers match step 0, and errors are large."""
    flat = {"r2": np.nan, "r2_low": np.nan, "r2_high": np.nan, "mean": 12 * [0.0], "sd": 12 * [0.0]}
    solvers = {name: replace(found, **flat) for name, found in model.solvers.items()}
    large = (1e5 * np.array(model.layer_mse)).tolist()
    return replace(model, layer_mse=large, alignment=replace(model.alignment, solvers=solvers))


@pytest.mark.parametrize("arm", ["attention", "width", "inputs", "seeds", "kernel", "steps"])
def test_a_useless_model_is_drawn_and_has_no_r2(everything, arm):
    make, names, _ = ARMS[arm]
    found = some(everything, names)
    found.models[names[0]] = replace(useless(found.models[names[0]]), last_token=None)
    result = make(found)
    result.draw().savefig(io.BytesIO())
    lines = result.summary.lines
    assert any("none" in line for line in lines)
    assert not any("nan" in cell or "inf" in cell for line in lines for cell in line)
    assert {each.outcome for each in result.comparisons if np.isnan(each.ours)} <= {"not comparable"}
    words = " ".join(key_findings(found))
    assert "nan" not in words
    assert ("all layers match one Richardson step best" in words) == (names[0] == "sphere")


def test_a_figure_names_the_models_it_lacks(everything):
    result = capacity.heads(some(everything, ("sphere", "heads-2")))
    assert "Not here yet: heads-1, heads-4 " in result.caption
    assert "Training: 500000 steps." in result.caption


def test_models_without_probes_of_the_last_token_have_no_figure_of_them(everything):
    assert steps.by_probe(some(everything, ("sphere-fast",))) is None


def test_conjugate_gradients_have_a_scale_of_their_own(everything):
    (ax,) = steps.of_model(everything, "sphere", "Figure 2b").draw().axes
    (inset,) = ax.child_axes
    assert inset.get_ylim()[1] < ax.get_ylim()[1] / 2
    assert len(ax.get_legend().get_texts()) == 4


def test_the_paper_s_numbers_of_a_model_are_compared(everything):
    r2, won = steps.of_model(everything, "sphere", "Figure 2b").comparisons
    assert (r2.where, r2.paper, r2.rounding, r2.note) == ("Figure 2b and text", 0.976, 0.0005, "500000 steps")
    assert (won.paper, won.ours, won.whole) == (11, 12, True)
    assert r2.seed_variation == won.seed_variation == 0  # the seeds are equal here
    r2, won = steps.by_kernel(everything).comparisons
    assert [(r2.paper, r2.ours), (won.paper, won.ours)] == [(0.9275, pytest.approx(1, abs=1e-3)), (7, 12)]
    assert [line[4] for line in steps.by_kernel(everything).summary.lines] == ["0.976", "0.9275"]
    assert steps.of_model(everything, "uniform", "Figure 3a").comparisons == ()


def test_probes_of_the_last_token_are_compared_and_not_counted(everything):
    r2, won = steps.by_probe(everything).comparisons
    last = everything.models["sphere"].by_last_token()
    assert [(r2.paper, r2.ours, r2.counted), (won.paper, won.ours, won.counted)] == [
        (0.976, last.richardson.r2, False),
        (11, last.won, False),
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sphere", "sphere, 12 layers"),
        ("sphere-fast", "sphere, 12 layers, 82,000 training steps"),
        ("linear-mean-uniform", "uniform, 12 layers, linear attention"),
    ],
)
def test_a_model_s_title_says_what_is_not_the_paper_s(everything, name, words):
    assert model_title(everything.models[name]) == words


def test_identical_seeds_have_no_variation(everything):
    header, lines = steps.summary_seeds({name: everything.models[name] for name in SEEDS})
    assert lines[-1] == ["seed-to-seed variation (95 %)", *["0.000"] * 6]
    assert len(header) == 7


def test_constructed_models_stand_beside_the_trained_one(everything):
    names = ("constructed-1", "constructed-5", "constructed-chebyshev")
    models = {name: replace(everything.models["sphere"], name=name, label=name) for name in names}
    result = constructed.beside_trained(replace(everything, constructed=models))
    check(result, 2)
    assert [line[0] for line in result.summary.lines] == ["trained", *names]
    assert result.summary.lines[0][-1] == "12 of 12"
    assert constructed.beside_trained(everything) is None


def levels(value):
    return Ratio(value=9 * [value], standard_error=9 * [0.1], low=9 * [value / 2], high=9 * [value * 2])


def test_noise_of_models_is_compared_with_the_paper_s_transformer(everything):
    of_model = ModelNoise(over_optimal=levels(1.2), encoded_over_optimal=levels(1.1), over_encoded=levels(1.05))
    names = ("sphere", "gaussian", "gaussian-1.0", "sphere-fast", "sphere-fast-seed-1", "heads-1")
    found = replace(everything, model_noise=dict.fromkeys(names, of_model))
    result = noise.transformers(found)
    check(result, 3 + 3)
    assert len(result.comparisons) == 3 * 10
    assert {each.seed_variation for each in result.comparisons if "Gaussian" in each.quantity} == {None}
    assert {each.seed_variation for each in result.comparisons if "sphere" in each.quantity} == {1}
    assert {TITLES["gaussian-1.0"] in each.quantity for each in result.comparisons if not each.counted} == {True}
    assert noise.transformers(replace(everything, model_noise={"heads-1": of_model})) is None


def test_the_gaussian_column_of_the_noise_table_is_counted_where_its_spread_is_as_stated():
    compared = noise.compare_ridge(compute_ridge_noise(32, 20))
    left_out = [each.quantity.split("error, ")[1] for each in compared if not each.counted]
    assert sum(words.startswith(TITLES["gaussian-1.0"]) for words in left_out) == len(SIGMA_TEST)
    # Where the noise is that of training the two predictors are one.
    rest = [words for words in left_out if TITLES["gaussian-1.0"] not in words]
    assert rest == [f"{TITLES[name]}, σ_test = 0.05" for name in DISTRIBUTIONS]


# Verdicts -------------------------------------------------------------------------------------------------------------


def a_verdict(name, truth=None, **changes):
    compared = {"classes": {"gd": 0.25, "cg": 1.5}, "families": ["gd", "cg"], "U_layer": [[0.2, 0.3], [1.0, 2.0]]}
    words = {"status": "none", "solver": None, "headline": "none (nearest: gd)", "reason": "", "rival": None}
    numbers = {"U": 0.2, "V": None, "margin": 0.1, "depth": 12, "won": 3, "layers": [1.0, 2.0]}
    about = {"name": name, "truth": truth, "what": "", "setting": "sphere", "text": "", "nearest": "gd"}
    return ModelVerdict(**{**about, **compared, **words, **numbers, **changes})


SILENT = {"classes": {}, "families": [], "layers": [], "U_layer": [], "nearest": None}


@pytest.mark.parametrize(
    ("few", "plots"), [([], 0), (["uniform"], 1), (["uniform", "sphere", "ridge path", "kernel average"], 4)]
)
def test_the_verdict_figure_shows_every_class_and_boxes_the_nearest(few, plots):
    shown = {name: a_verdict(name, "gd" if " " in name else None) for name in ("heads-1", *few)}
    fig = draw_verdicts({**shown, "silent": a_verdict("silent", **SILENT)})
    table, *layers = fig.axes
    assert {text.get_text() for text in table.texts} == {"0.25", "1.50"}
    assert len(table.patches) == 1 + len(few)
    assert [label.get_text() for label in table.get_xticklabels()] == ["gd", "cg"]
    assert len(layers) == plots + (plots > 0)  # and a scale of colours


def test_a_verdict_figure_of_nothing_is_empty():
    assert draw_verdicts({"silent": a_verdict("silent", **SILENT)}).axes == []


def rgb(pixels):
    return {to_hex(pixel) for pixel in np.unique(pixels.reshape(-1, 4)[:, :3], axis=0) / 255}


def test_no_label_of_the_verdict_figure_is_cut_at_an_edge(tmp_path):
    names = [f"a-model-with-a-long-name-{i}" for i in range(20)]
    result = result_of(lambda: draw_verdicts({name: a_verdict(name) for name in names}))
    result.write(tmp_path)
    import matplotlib.image

    pixels = (matplotlib.image.imread(tmp_path / "small.png") * 255).round().astype(int)
    for edge in (pixels[:, :2], pixels[:, -2:], pixels[:2], pixels[-2:]):
        assert rgb(edge) == {"#ffffff"}


# Files ----------------------------------------------------------------------------------------------------------------


def result_of(draw=None, data=None, name="small"):
    def line():
        with figure(2, 1) as fig:
            fig.subplots().plot([0, 1], data or [0, 1])
        return fig

    table = Table(["x"], [[value] for value in data or [0, 1]])
    code = "layerstep.reproduction.figures.capacity"
    return Result(
        name=name, title="small", caption="", data=data or [0, 1], draw=draw or line, table=lambda: table, code=code
    )


def contents(folder):
    """All files but for what says when and how fast they were made."""
    found = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".json":
            made = json.loads(file.read_text())
            found[file.name] = {key: made[key] for key in made if key not in ("provenance", "seconds")}
        else:
            found[file.name] = file.read_bytes()
    return found


def test_a_result_is_figure_csv_and_json_and_is_not_made_twice(tmp_path):
    said = []
    assert result_of().write(tmp_path, said.append)
    assert {file.name for file in tmp_path.iterdir()} == {
        f"small.{kind}" for kind in ("json", "csv", "svg", "pdf", "png")
    }
    assert not result_of().write(tmp_path, said.append)
    assert said == ["small"]
    with open(tmp_path / "small.csv") as file:
        assert list(csv.reader(file)) == [["x"], ["0"], ["1"]]
    assert json.loads((tmp_path / "small.json").read_text())["provenance"]["torch"]


def test_the_same_result_has_the_same_files(tmp_path):
    for place in ("a", "b"):
        result_of().write(tmp_path / place)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("kind", ["json", "csv", "svg", "pdf", "png"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "noise", "zeros"])
def test_a_damaged_file_is_made_anew(kind, damage, tmp_path):
    result_of().write(tmp_path)
    whole, file = contents(tmp_path), tmp_path / f"small.{kind}"
    size = file.stat().st_size
    damaged = {
        "empty": b"",
        "cut": file.read_bytes()[: size // 2],
        "noise": bytes(range(256)) * 8,
        "zeros": bytes(size),
    }
    file.unlink() if damage == "gone" else file.write_bytes(damaged[damage])
    assert result_of().write(tmp_path)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("last", ["csv", "svg", "pdf", "png"])
def test_an_interrupted_result_is_not_found_as_finished_when_inputs_change_back(last, tmp_path, monkeypatch):
    """Made of [0, 1]; then of [5, 6], but stopped after the file `last`; then of [0, 1] again."""

    class Stopped(BaseException):
        pass

    from layerstep.reproduction.figures import result as module

    result_of().write(tmp_path)
    whole = contents(tmp_path)
    real = module.write_text if last == "csv" else module.save

    def stop(*of, **options):
        made = real(*of, **options)
        if last == "csv" or of[2] == last:
            raise Stopped
        return made

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(module, "write_text" if last == "csv" else "save", stop)
        result_of(data=[5, 6]).write(tmp_path)
    assert result_of().write(tmp_path)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\x00", b"no figure"])
def test_a_damaged_svg_is_named(damage, tmp_path):
    (tmp_path / "small.svg").write_bytes(damage)
    with pytest.raises(FileError, match=r"small\.svg is not an SVG figure"):
        result_of().svg(tmp_path)


# Comparisons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper", "low", "high", "rounding", "outcome"),
    [
        (1.0, 0.9, 1.1, 0.0, "reproduced"),
        (1.0, 1.004, 1.1, 0.005, "reproduced"),
        (1.0, 1.01, 1.1, 0.005, "not reproduced"),
        (1.0, float("nan"), float("nan"), 0.0, "not comparable"),
    ],
)
def test_the_outcome_follows_the_rule(paper, low, high, rounding, outcome):
    found = Comparison(quantity="q", where="w", paper=paper, ours=1.0, low=low, high=high, rounding=rounding)
    assert found.outcome == outcome
