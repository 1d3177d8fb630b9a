"""One call on a model: what carries the answer, what is said, and what odd models are answered with."""

import functools
import json
from types import SimpleNamespace

import pytest
from torch import nn

import layerstep as ls
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.combined.subject import open_subject
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.interventions import instrument

TASK = ls.Task(inputs="sphere", d=3, N=7)
TINY = ls.Model(layers=1, heads=1, width=4)
FEW = {"prompts": 64, "fit": 256, "families": ls.FAMILIES[:4], "cache": False}


def make_small(patch):
    """Few prompts for the interventions, one bandwidth for the library."""
    patch.setattr(instrument, "PROMPTS", {"fit": 60, "choose": 12, "score": 12, "check": 6})
    patch.setattr(Instrument, "prepare", functools.partial(Instrument.prepare, bandwidths=(1.0,), ridges=()))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def planted():
    """Richardson in its functional form beside exact KRR, readable and unused; the answer with its own head."""
    reader = Mechanism(solver="richardson", mask="open", steps=(1, 1, 1, 1), v=TASK.v).reader(TASK)
    frame = reader.model.frame
    patch = pytest.MonkeyPatch()
    make_small(patch)
    shown = []
    found = ls.identify(
        reader,
        TASK,
        head=lambda state: frame.read(state[:, reader.queries], "f"),
        progress=lambda done, words: shown.append((done, words)),
        **FEW,
    )
    patch.undo()
    return found, shown


@pytest.mark.slow
def test_a_planted_mechanism_is_named_by_what_is_written_into_it(planted):
    found, _ = planted
    assert (found.solver, found.status, found.carried_by) == ("richardson", "runs", "interventions")
    assert found.behaviour.solver is None
    assert found.readings.verdicts["lens"].solver == "richardson"
    first, second, third = found.sentences
    assert first.startswith("PlantedNetwork runs richardson: what is written into layers.0 to layers.2 comes out")
    assert "probes fitted on y" in second
    assert "differ most at layers.0" in second
    assert "networks that run something else" in third


@pytest.mark.slow
def test_the_probe_reads_the_decoy_and_the_head_the_state(planted):
    errors = planted[0].readings.errors
    assert bool((errors["labels"][1:4] < errors["lens"][1:4] / 5).all())
    assert "what is read there depends on the reader" in planted[0].readings.meaning()


@pytest.mark.slow
def test_a_result_is_text_json_html_and_a_figure(planted, tmp_path):
    found, shown = planted
    lines = str(found).splitlines()
    assert lines[:3] == list(found.sentences)
    assert len(repr(found)) < 120
    assert str(found.behaviour) in found.report()
    data = json.loads(json.dumps(found.to_dict()))
    assert data["operator"]["layers.1"]["bandwidth"] == pytest.approx(TASK.v, rel=0.1)
    found.plot(tmp_path / "found.png")
    assert (tmp_path / "found.png").stat().st_size > 10_000
    assert found.sentences[2] in found._repr_html_()
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
    assert {"writing into the layers", "running every solver on the same prompts"} <= {words for _, words in shown}


@pytest.mark.parametrize(
    ("kernel", "name"), [("matern32", "matern32"), (ls.RationalQuadratic(alpha=0.5), "rational-quadratic:0.5")]
)
def test_a_constructed_transformer_is_asked_about_its_own_kernel(kernel, name):
    """With the Gaussian kernel's systems every number would be about another network."""
    network = ls.construct(2, 4, 1.0, 0.1, L=3, kernel=kernel)
    subject = open_subject(network, None)
    assert subject.task.kernel == name
    exact = ls.exact(ls.sample(subject.task, 3, seed=0), subject.task)
    deep = open_subject(ls.construct(2, 4, 1.0, 0.1, L=60, kernel=kernel, kernel_error=1e-4), None)
    assert (deep.own(ls.sample(subject.task, 3, seed=0)).values[-1, :, -1] - exact[:, -1]).abs().max() < 1e-3
    with pytest.raises(ls.InputError, match=f"task.kernel = gaussian: must be {name}, the kernel that the network"):
        open_subject(network, ls.Task(d=2, N=4, v=1.0, sigma=0.1**0.5))


def test_a_constructed_transformer_answers_by_its_own_read_out():
    network = ls.construct(3, 7, 1.0, TASK.lam, scheme="exact", L=60)
    found = ls.identify(network, parts=("behaviour", "interventions"), prompts=64, cache=False)
    assert (found.solver, found.carried_by) == ("chebyshev", "its own read-out")
    assert found.untested["interventions"].startswith("it takes 60 iterations, and the search knows")
    assert "interventions cannot be tested, because it takes 60 iterations" in found.sentences[1]
    with pytest.raises(ls.InputError, match=r"task.sigma = 0.2: must be 0.05. The network was constructed with it"):
        ls.identify(network, ls.Task(d=3, N=7, sigma=0.2))


def test_silence_is_said_not_to_be_evidence(monkeypatch):
    model = ls.GPT(ls.Model(layers=2, heads=2, width=16), d=3, N=7).initialise(0)
    found = ls.identify(model, TASK, **FEW)
    assert found.solver is None
    assert found.operator
    assert "not evidence against a solver inside: probes fitted on y read the best prediction" in found.sentences[2]
    record = "layerstep.measurement.combined.sentences.trained_positives"
    for known, words in (((1, 9), "recognised 1 of 9 networks that were trained"), (None, "has not been measured")):
        monkeypatch.setattr(record, lambda known=known: known)
        again = type(found)(**{name: getattr(found, name) for name in found.__dataclass_fields__})
        assert words in again.sentences[2]


class Blocks(nn.Module):
    """x_1, y_1, x_2, ... through running sums; leaks=True: every token sees all others."""

    def __init__(self, leaks=False, constant=False):
        super().__init__()
        self.leaks, self.constant = leaks, constant
        self.block = nn.Linear(4, 4)
        self.drop = nn.Dropout()

    def forward(self, tokens):
        seen = tokens.sum(1, keepdim=True).expand_as(tokens) if self.leaks else tokens.cumsum(1)
        return self.block(0 * seen if self.constant else seen)[..., ::2, 0]


def tokens(prompts):
    made = prompts.x.new_zeros(prompts.B, 2 * prompts.N + 1, prompts.d + 1)
    made[:, 0::2, :-1], made[:, 1::2, -1] = prompts.x, prompts.y[:, :-1]
    return made


def hooked(**options):
    return ls.Hooked(model=Blocks(**options).eval(), inputs=tokens, modules=["block"])


def test_a_constant_state_is_a_sentence_and_no_number():
    found = ls.identify(hooked(constant=True), TASK, **FEW)
    assert (found.solver, found.status) == (None, "not tested")
    assert "nothing that could be identified" in found.sentences[1]
    assert "cannot be tested, because its states at the examples are a function" in str(found)


@pytest.mark.parametrize(
    ("model", "task", "words"),
    [
        (lambda: hooked(leaks=True), TASK, "the state at x_{n+1} depends on y_{n+1}, which it should predict"),
        (lambda: ls.Hooked(model=Blocks().train(), inputs=tokens, modules=["block"]), TASK, "is in training mode"),
        (
            lambda: SimpleNamespace(_orig_mod=ls.GPT(TINY, d=3, N=7)),
            TASK,
            "is compiled",
        ),
        (lambda: ls.GPT(TINY, d=2, N=7), TASK, "task.d = 3: must be 2"),
        (lambda: ls.GPT(TINY, d=3, N=4), TASK, "task.N = 7: must be at most 4"),
        (hooked, ls.Task(d=2, N=7), r"model: raised RuntimeError on prompts of the task \(d = 2, N = 7\)"),
        (hooked, None, "task = None: must be a Task. The model was made for one"),
        (hooked, "sphere", "task = a str: must be a Task"),
        (lambda: "tiny", 3, "task = an int: must be a Task"),
        (lambda: nn.Linear(2, 2), TASK, "model: a Linear is not one layerstep knows. Wrap it"),
        (lambda: "nowhere", None, "must be a directory, a file, or one of tiny, richardson"),
        (lambda: None, TASK, "model: a NoneType is not one layerstep knows"),
    ],
)
def test_odd_models_and_tasks_end_in_a_sentence(model, task, words, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ls.InputError, match=words.replace("{", r"\{").replace("+", r"\+")):
        ls.identify(model(), task, prompts=64)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": ["behavior"]}, "parts = 'behavior': must be one of behaviour, readings, interventions"),
        ({"parts": "behaviour"}, "parts = 'behaviour': must be some of"),
        ({"parts": []}, "must be some of behaviour"),
        ({"prompts": 8}, "prompts = 8: must be an integer of at least 64"),
        ({"head": 3}, "head = 3: must be a function from a state"),
        ({"head": lambda state: state}, r"head: gives \[16, 15, 4\]. It must turn"),
        ({"probes": 3}, "probes = an int: must be a Probes"),
    ],
)
def test_options_are_checked(options, words, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ls.InputError, match=words):
        ls.identify(hooked(), TASK, **(FEW | options))
