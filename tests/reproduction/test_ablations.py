"""Figures that set models side by side: made from any subset of the runs, with known answers where they are planted."""

import copy
import io

import numpy as np
import pytest

from layerstep.reproduction import measurements, runs
from layerstep.reproduction.claims.findings import findings
from layerstep.reproduction.figures import ablations, capacity, constructed_vs_trained, probes, seeds, trained
from layerstep.reproduction.runs import RUNS

ARMS = {
    "attention": (lambda found: ablations.attention(found, "linear"), ("linear-uniform", "linear-sphere"), 2 * 6),
    "attention-mean": (lambda found: ablations.attention(found, "linear-mean"), ("linear-mean-gaussian",), 6),
    "kernel": (ablations.kernel, ("sphere", "arccos1"), 2),
    "depth": (ablations.depth, ("sphere-24",), 1),
    "heads": (capacity.heads, ("heads-1", "heads-4", "sphere"), 2),
    "width": (capacity.width, ("width-32", "width-512", "sphere-fast"), 2),
    "seeds": (seeds.seeds, ("sphere-fast", "sphere-fast-seed-2"), 2),
    "laws": (trained.laws, ("sphere", "gaussian"), 1),
    "probes": (probes.last_token, ("uniform", "sphere", "sphere-fast", "sphere-fast-seed-1"), 2),
    "grid": (lambda found: trained.similarity(found, runs.LAWS, "laws", "Figure 5"), ("sphere", "uniform"), 8 + 1),
    "heat": (lambda found: trained.heat(found, "sphere", "Figure 2a"), ("sphere",), 1 + 1),
    "steps": (lambda found: trained.steps(found, "sphere", "Figure 2b"), ("sphere", "sphere-fast"), 1),
    "errors": (lambda found: trained.errors(found, "sphere-24", "Figure 6a", 300), ("sphere-24",), 5),
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory, plant):
    """Numbers of every run, those of two planted models under all names, and their folders."""
    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    numbers = {}
    for name in ("sphere", "sphere-24"):
        plant(name, stride=5)
        numbers[RUNS[name].run.model.layers] = measurements.compute(name)
    found = {}
    for name, run in RUNS.items():
        source = RUNS["sphere-24" if run.run.model.layers == 24 else "sphere"].folder
        if name not in ("sphere", "sphere-24"):
            run.folder.mkdir()
            for file in ("config.json", "predictions.safetensors"):
                (run.folder / file).write_bytes((source / file).read_bytes())
        held = {"model": name, "setting": run.setting, "trained_steps": run.run.steps, "held": f"{run.run.steps} steps"}
        model = copy.deepcopy(numbers[run.run.model.layers])
        again = {"last": {key: model[key] for key in ("range", "solvers", "won", "won_low", "won_high")}}
        found[name] = {**model, **held, **(again if name in runs.LAWS else {})}
    yield found
    patch.undo()


@pytest.mark.parametrize("arm", ARMS)
def test_a_figure_is_made_from_the_models_that_are_here(everything, arm):
    make, names, panels = ARMS[arm]
    artefact = make({name: everything[name] for name in names})
    assert artefact is not None
    data = artefact.compute(artefact.config)
    assert len(artefact.draw(data).axes) == panels
    header, lines = artefact.table(data)
    assert {len(line) for line in lines} == {len(header)}
    if artefact.summary:
        header, lines = artefact.summary(data)
        assert {len(line) for line in lines} == {len(header)}
        assert all(isinstance(cell, str) for line in lines for cell in line)


@pytest.mark.parametrize("arm", ["attention", "width", "laws", "seeds", "kernel", "steps"])
def test_a_useless_model_is_drawn_and_has_no_r2(everything, arm):
    make, names, _ = ARMS[arm]
    found = {name: copy.deepcopy(everything[name]) for name in names}
    useless = found[names[0]]  # all layers match step 0, and their errors are large
    for solver in useless["solvers"].values():
        layers = len(solver["mean"])
        solver |= {"r2": np.nan, "r2_low": np.nan, "r2_high": np.nan, "mean": [0.0] * layers, "sd": [0.0] * layers}
    useless["layer_mse"] = (1e5 * np.array(useless["layer_mse"])).tolist()
    artefact = make(found)
    assert artefact is not None
    assert artefact.summary is not None
    data = artefact.compute(artefact.config)
    artefact.draw(data).savefig(io.BytesIO())
    lines = artefact.summary(data)[1]
    assert any("none" in line for line in lines)
    assert not any("nan" in cell or "inf" in cell for line in lines for cell in line)
    assert {row.outcome for row in artefact.rows(data) if np.isnan(row.ours)} <= {"cannot be compared"}
    words = " ".join(findings({"steps-sphere": data} if arm == "steps" else {}))
    assert "nan" not in words
    assert ("all layers match one Richardson step best" in words) == (arm == "steps")


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in ("steps", "errors")])
def test_no_figure_is_made_of_nothing(arm):
    assert ARMS[arm][0]({}) is None


def test_a_figure_names_the_models_it_lacks(everything):
    artefact = capacity.heads({name: everything[name] for name in ("sphere", "heads-2")})
    assert artefact is not None
    assert "Not here yet: heads-1, heads-4 " in artefact.caption
    assert "Training: 500000 steps (heads-2, sphere)." in artefact.caption


def test_the_default_model_beside_others_was_trained_as_long_as_they(everything):
    assert capacity.twin(everything, ["heads-1", "heads-2"]) == "sphere"
    short = everything | {"heads-1": {**everything["heads-1"], "trained_steps": 82_000}}
    assert capacity.twin(short, ["heads-1"]) == "sphere-fast"
    assert capacity.twin({}, ["heads-1"]) == "sphere"


def test_models_without_probes_of_the_last_token_have_no_figure_of_them(everything):
    assert probes.last_token({"sphere-fast": everything["sphere-fast"]}) is None


def test_conjugate_gradients_have_a_scale_of_their_own(everything):
    artefact = trained.steps(everything, "sphere", "Figure 2b")
    (ax,) = artefact.draw(artefact.compute({})).axes
    (inset,) = ax.child_axes
    assert inset.get_ylim()[1] < ax.get_ylim()[1] / 2
    legend = ax.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 4


def test_the_arc_cosine_section_holds_the_paper_s_numbers(everything):
    artefact = ablations.kernel(everything)
    assert artefact is not None
    rows = artefact.rows(artefact.compute({}))
    assert [(row.paper, row.ours) for row in rows] == [(0.9275, pytest.approx(1, abs=1e-3)), (7, 12)]
    assert [row.runs for row in rows] == [0, 0]  # the seeds of the sphere, which are equal here
    assert [row.rounding for row in rows] == [0.00005, 0]
    assert artefact.summary is not None
    assert [line[4] for line in artefact.summary(artefact.compute({}))[1]] == ["0.976", "0.9275"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sphere", "sphere, 12 layers"),
        ("sphere-fast", "sphere, 12 layers, 82,000 training steps"),
        ("linear-mean-uniform", "uniform, 12 layers, linear attention"),
    ],
)
def test_a_model_s_title_says_what_is_not_the_paper_s(everything, name, words):
    assert trained.title(everything[name]) == words


def test_identical_seeds_have_no_range(everything):
    header, lines = seeds.summary_seeds({name: everything[name] for name in runs.SEEDS})
    assert lines[-1] == ["two runs differ by up to", *["0.000"] * 6]
    assert len(header) == 7


def test_one_step_a_layer_is_a_straight_line(monkeypatch):
    shown = {name: constructed_vs_trained.WRITTEN[name] for name in ("written-1", "written-chebyshev")}
    monkeypatch.setattr(constructed_vs_trained, "WRITTEN", shown)
    found = constructed_vs_trained.compute()
    richardson = found["written-1"]["solvers"]["richardson"]
    np.testing.assert_allclose(richardson["mean"], np.arange(1, 13), atol=0.05)
    assert richardson["r2"] == pytest.approx(1, abs=1e-4)
    assert found["written-1"]["won"]["richardson"] == 12
    # Another solver: Richardson wins few of its layers, however straight its line.
    assert found["written-chebyshev"]["won"]["richardson"] < 6
    artefact = constructed_vs_trained.artefact({}, found)
    data = artefact.compute({})
    assert len(artefact.draw(data).axes) == 2
    assert artefact.summary is not None
    assert artefact.summary(data)[1][0][-1] == "12 of 12"
