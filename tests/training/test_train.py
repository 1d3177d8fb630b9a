"""train: a directory that can be trusted after a kill, a full disk or a wrong word."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import layerstep as ls
from layerstep.cli import main
from layerstep.errors import FileError, InputError
from layerstep.tasks import Task
from layerstep.training import GPT, Diverged, Model, Run, train
from layerstep.training.checkpoint import load_checkpoint, save_checkpoint
from layerstep.training.loop import training

RUN = Run(task=Task(N=4, d=2), model=Model(layers=1, heads=2, width=16), steps=300, batch=4, lr=1e-3, warmup=10)
STACK = [RUN, RUN.override(seed=1, inputs="uniform")]


def test_the_folder_holds_model_log_snapshots_and_checkpoint(tmp_path):
    seen = []
    gpt = train(RUN, tmp_path / "a", device="cpu", on_log=seen.append)
    again = GPT.from_pretrained(tmp_path / "a")
    assert all(torch.equal(a, b) for a, b in zip(gpt.parameters(), again.parameters(), strict=True))
    records = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert records == seen
    assert records[-1]["step"] == 300
    assert sorted(p.name for p in (tmp_path / "a" / "snapshots").iterdir()) == [
        "step-000000036", "step-000000090", "step-000000180",
    ]  # fmt: skip
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert Run.from_dict(config["about"]["run"]) == RUN


def test_a_stack_writes_each_model_as_if_alone(tmp_path):
    together = train(STACK, tmp_path / "stack", device="cpu")
    alone = train(STACK[1], tmp_path / "one", device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(together[1].parameters(), alone.parameters(), strict=True))
    GPT.from_pretrained(tmp_path / "stack" / STACK[0].name)


SCRIPT = """
import json, sys
from layerstep.training import Run, train
runs = [Run.from_dict(values) for values in json.loads(sys.argv[2])]
train(runs, sys.argv[1], device="cpu", checkpoint_seconds=0)
"""


def test_a_killed_run_goes_on_to_the_same_bits():
    """Two of the hundred kills of `make kill`."""
    script = Path(__file__).parents[1] / "fuzz" / "kill_training.py"
    command = [sys.executable, str(script), "--kills", "2"]
    run = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert run.stdout.startswith("2 kills of"), run.stderr


@pytest.fixture
def press():
    """What presses Ctrl-C, in a program that handles it as Python does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_schedulers_signal_writes_a_checkpoint_and_ends_the_process_as_ever(tmp_path, number):
    """As a scheduler sends it: what runs after the call in the script is not run."""
    code = (
        SCRIPT.replace("device=", "on_log=lambda record: print(record['step'], flush=True), device=")
        + "print('ran on')"
    )
    runs = [RUN.override(steps=20_000)]
    command = [sys.executable, "-c", code, str(tmp_path), json.dumps([run.to_dict() for run in runs])]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = int(process.stdout.readline())
    process.send_signal(number)
    rest = process.stdout.read()
    assert process.wait() == -number
    assert "ran on" not in rest
    found = load_checkpoint(tmp_path / "checkpoints", runs)
    assert found is not None
    assert first <= found[0] < 20_000
    last = int(rest.split()[-1]) if rest else first
    assert found[0] == last  # everything that was logged is in it


@pytest.mark.parametrize("at", [64, 300])
def test_ctrl_c_writes_a_checkpoint_that_goes_on_to_the_same_bits(tmp_path, press, at):
    """In the middle, and when nothing is left to do but to save the model."""
    with pytest.raises(KeyboardInterrupt):
        train(RUN, tmp_path / "a", device="cpu", on_log=lambda record: record["step"] == at and press())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    found = load_checkpoint(tmp_path / "a" / "checkpoints", [RUN])
    assert (found is None) == (at == 300)  # nothing is left to go on from when the model is saved
    if found:
        assert at <= found[0] <= min(at + 3 * 64, 300)  # losses are read a few chunks late
    resumed = train(RUN, tmp_path / "a", device="cpu", resume=True)
    about = json.loads((tmp_path / "a" / "runs.json").read_text())
    went_on = [about["provenance"]["device"]] if at == 64 else []  # 300: the model was saved already
    assert [place["device"] for place in about.get("resumed", [])] == went_on
    whole = train(RUN, tmp_path / "b", device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in "ab"]
    assert [json.loads(line) | {"seconds": 0} for line in logs[0]] == [
        json.loads(line) | {"seconds": 0} for line in logs[1]
    ]


def test_a_second_ctrl_c_does_not_wait(tmp_path, press):
    seen = []

    def twice(record):
        press()
        seen.append(record)
        press()
        seen.append(record)

    with pytest.raises(KeyboardInterrupt):
        train(RUN, tmp_path, device="cpu", on_log=twice)
    assert len(seen) == 1
    assert not (tmp_path / "checkpoints").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_ignores_ctrl_c_trains_on(tmp_path, press):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    train(RUN, tmp_path, device="cpu", on_log=lambda record: press())
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_run_may_be_trained_in_a_thread(tmp_path):
    thread = threading.Thread(target=train, args=(RUN, tmp_path), kwargs={"device": "cpu"})
    thread.start()
    thread.join()
    GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_nothing_to_resume_is_said_before_anything_is_written(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there is nothing to resume\. Leave out resume"):
        train(RUN, tmp_path / place, device="cpu", resume=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_folders_of_others_are_not_touched(tmp_path):
    train(RUN, tmp_path / "a", device="cpu")
    with pytest.raises(InputError, match="this run was started there"):
        train(RUN, tmp_path / "a", device="cpu", resume=False)
    for resume in ("auto", True):
        with pytest.raises(InputError, match="holds another run"):
            train(RUN.override(lr=2e-3), tmp_path / "a", device="cpu", resume=resume)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match="is not empty and holds no run"):
        train(RUN, tmp_path / "b", device="cpu")


@pytest.mark.parametrize("resume", ["auto", True])
@pytest.mark.parametrize("runs", [RUN, STACK], ids=["alone", "stack"])
def test_a_finished_run_is_found_done(tmp_path, monkeypatch, runs, resume):
    first = train(runs, tmp_path, device="cpu")
    monkeypatch.setattr("layerstep.training.loop.Engine", None)  # nothing is trained again
    again = train(runs, tmp_path, device="cpu", resume=resume)
    for one, two in zip(*[[models] if runs is RUN else models for models in (first, again)], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_a_finished_model_that_was_damaged_is_trained_again(tmp_path):
    first = train(RUN, tmp_path, device="cpu")
    assert not (tmp_path / "checkpoints").exists()
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    again = train(RUN, tmp_path, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_another_function_under_the_name_of_a_kernel_is_another_run(tmp_path, monkeypatch):
    def laplace(scale):
        return lambda x, z, v: torch.exp(-scale * torch.cdist(x, z) / v)

    monkeypatch.setitem(ls.KERNELS, "mine", laplace(1.0))
    run = RUN.override(kernel="mine", steps=64, warmup=0)
    train(run, tmp_path, device="cpu")
    with pytest.raises(InputError, match="this run was started there"):
        train(RUN.override(kernel="mine", steps=64, warmup=0), tmp_path, device="cpu", resume=False)
    written = json.loads((tmp_path / "runs.json").read_text())["runs"][0]
    assert Run.from_dict(written) == run
    monkeypatch.setitem(ls.KERNELS, "mine", laplace(1.001))
    with pytest.raises(InputError, match="holds another run"):
        train(run, tmp_path, device="cpu")
    with pytest.raises(
        InputError, match=r"kernel = 'mine': must be the function it was .* ls\.KERNELS, or choose another"
    ):
        Run.from_dict(written)


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        ("bytes", FileError, "does not have the checksum it was written with. Delete"),
        ("missing", FileError, "cannot read .*safetensors"),
        ("format", FileError, "has format 0, this version reads 1"),
        ("json", FileError, "not readable JSON .* Or: delete .* to resume from the checkpoint before it"),
        ({"step": 10**9}, FileError, "says step 1000000000, which is not its own. Delete"),
        ({"step": "x"}, FileError, "says step 'x', which is not its own"),
        ({"sha256": None}, FileError, "does not have the checksum"),
        ("run", InputError, "belongs to another run"),
    ],
)
def test_damaged_checkpoints_are_refused_in_words(tmp_path, damage, error, words):
    path = save_checkpoint(tmp_path, [RUN], 5, {"weights": torch.arange(9.0)})
    note = path.with_suffix(".json")
    if damage == "bytes":
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    elif damage == "missing":
        path.unlink()
    elif damage == "format":
        note.write_text(json.dumps(json.loads(note.read_text()) | {"format": 0}))
    elif damage == "json":
        note.write_text(note.read_text()[:30])
    elif isinstance(damage, dict):
        note.write_text(json.dumps(json.loads(note.read_text()) | damage))
    run = RUN.override(seed=5) if damage == "run" else RUN
    with pytest.raises(error, match=words):
        load_checkpoint(tmp_path, [run])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": torch.zeros(2)}, r"has \[2\], torch.float32 as weights, not \[1, 9\], torch.float32\. Delete"),
        ({"weights": torch.zeros(1, 9).double()}, r"has \[1, 9\], torch.float64 as weights, not"),
        ({"other": torch.zeros(1)}, "has nothing as weights, not"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused_in_words(tmp_path, change, words):
    """Its checksum is right: it was made by something else."""
    save_checkpoint(tmp_path, [RUN], 5, change)
    with pytest.raises(FileError, match=words):
        load_checkpoint(tmp_path, [RUN], {"weights": torch.zeros(1, 9)})


@pytest.mark.parametrize(
    "size", [{"layers": 10**6}, {"layers": 10**12}, {"width": 2**24}, {"N": 10**6, "sigma": 9.0}, {"d": 10**9}], ids=str
)
def test_what_cannot_fit_in_memory_is_refused_in_words(tmp_path, size):
    with pytest.raises(InputError, match=r"needs .* GiB of memory or more, and there are .* Take fewer"):
        train(RUN.override(**size), tmp_path / "out", device="cpu")
    assert list(tmp_path.iterdir()) == []


MISTAKES = {
    "a name": ("tiny", r"run = 'tiny': must be a Run or a list of them\. Such as ls\.PRESETS\['tiny'\]"),
    "no run": ([1], r"run = \[1\]: must be a Run or a list of them"),
    "no runs": ([], "runs = none: must be one run or more"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_not_a_run_is_refused_in_words(tmp_path, name, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(InputError, match=MISTAKES[name][1]):
        train(MISTAKES[name][0], tmp_path / "out")
    for options, words in (
        ({"resume": "maybe"}, "resume = 'maybe': must be one of auto, True, False"),
        ({"device": "tpu"}, "device = 'tpu': must be one of"),
    ):
        with pytest.raises(InputError, match=words):
            train(RUN, tmp_path / "out", **options)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"is a file\. Choose a directory"):
        train(RUN, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_weights_saved_over_others_are_the_ones_that_are_read(tmp_path):
    for seed, shard_bytes in enumerate((None, 1500, 3000, None, 1500)):  # whole, in shards, in fewer, whole, in shards
        gpt = GPT(Model(layers=1, heads=1, width=8), d=2, N=3).initialise(seed)
        gpt.save_pretrained(tmp_path, shard_bytes=shard_bytes)
        again = GPT.from_pretrained(tmp_path)
        assert all(torch.equal(a, b) for a, b in zip(gpt.parameters(), again.parameters(), strict=True))
        files = {file.name for file in tmp_path.glob("*.safetensors")}
        assert (files == {"model.safetensors"}) == (shard_bytes is None)
        assert len({name[-17:] for name in files}) == 1


def test_what_is_not_a_precision_or_size_is_refused_in_words(tmp_path):
    gpt = GPT(Model(layers=1, heads=1, width=8), d=2, N=3)
    for options in ({"dtype": torch.int8}, {"shard_bytes": 0}):
        with pytest.raises(InputError, match=f"{next(iter(options))} = .*: must be"):
            gpt.save_pretrained(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"snapshots": 0.5}, {"snapshots": ["a"]}, {"snapshots": [1.0]}, {"checkpoint_seconds": "60"}], ids=str
)
def test_what_is_not_a_fraction_or_time_is_refused_in_words(tmp_path, options, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(InputError, match=f"{next(iter(options))} = .*: must be a"):
        train(RUN, tmp_path / "out", device="cpu", **options)
    assert list(tmp_path.iterdir()) == []


def test_one_folder_is_one_run_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    first = training(RUN, tmp_path, device="cpu")
    next(first)
    with pytest.raises(FileError, match=r"is in use by another process\. Wait for it, or"):
        train(RUN, tmp_path, device="cpu", resume=True, wait=0.5)
    waiting = threading.Thread(target=train, args=(RUN, tmp_path), kwargs={"device": "cpu", "wait": 60})
    waiting.start()
    next(first)
    first.close()
    waiting.join()
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == sorted({record["step"] for record in records})
    assert records[-1]["step"] == RUN.steps


def test_ctrl_c_ends_the_wait_for_another_process(tmp_path, press):
    pytest.importorskip("fcntl")
    first = training(RUN, tmp_path, device="cpu")
    next(first)
    timer = threading.Timer(0.5, press_from_a_thread)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        train(RUN, tmp_path, device="cpu", wait=60)
    first.close()


def press_from_a_thread():
    os.kill(os.getpid(), signal.SIGINT)


def test_training_writes_how_good_the_model_is(tmp_path):
    gpt = train(RUN, tmp_path, device="cpu", prompts=64)
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert found["evaluation"] == ls.evaluate(gpt, RUN.task, B=64, seed=RUN.seed).to_dict()
    assert found["identity"] == RUN.identity
    assert found["seconds"] > 0
    (tmp_path / "evaluation.json").unlink()  # as if killed before it was there
    train(RUN, tmp_path, device="cpu", prompts=64)
    assert json.loads((tmp_path / "evaluation.json").read_text())["evaluation"] == found["evaluation"]


def test_a_run_that_diverged_is_not_trained_again(tmp_path, monkeypatch):
    lost = RUN.override(lr=1e30, warmup=0)
    words = []
    for engine in (None, "not needed"):
        if engine:
            monkeypatch.setattr("layerstep.training.loop.Engine", None)
        with pytest.raises(Diverged, match="the loss of run 0 is nan") as found:
            train([lost], tmp_path, device="cpu")
        words.append(str(found.value))
    assert words[0] == words[1]


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"null", b'{"step": "x"}', b"\xff\xfe", b'{"step": 3'])
def test_a_damaged_line_of_the_log_costs_that_line(tmp_path, line):
    steps = training(RUN, tmp_path, device="cpu")
    for _ in range(3):
        next(steps)
    steps.close()
    log = tmp_path / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(line + b"\n" + whole)
    train(RUN, tmp_path, device="cpu", resume=True)
    assert log.read_bytes().startswith(whole)


def test_the_last_step_is_shown_once(tmp_path, capsys):
    train(RUN, tmp_path, device="cpu", progress=True)
    assert capsys.readouterr().err.count(f"{RUN.steps:,}/{RUN.steps:,}") == 1


def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, [RUN], 5, {"weights": torch.ones(3)})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(FileError, match=r"cannot write .*No space left on device\. What was there before is unchanged"):
        save_checkpoint(tmp_path, [RUN], 6, {"weights": torch.zeros(3)})
    found = load_checkpoint(tmp_path, [RUN])
    assert found is not None
    assert found[0] == 5
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_log_that_cannot_grow_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("layerstep.training.loop.LOG", "../../../../../../../../dev/full")
    monkeypatch.setattr("layerstep.training.loop._Loop._trim_log", lambda self: 0.0)
    with pytest.raises(FileError, match=r"cannot write .*: No space left on device\. Free some space, then resume"):
        train(RUN, tmp_path, device="cpu")


def test_a_loss_that_is_not_a_number_stops_the_run_in_words(tmp_path):
    with pytest.raises(Diverged, match=r"the loss of run 0 is nan .* Lower lr"):
        train(RUN.override(lr=1e30, warmup=0), tmp_path, device="cpu")


def test_one_that_diverges_does_not_stop_the_one_beside_it(tmp_path):
    runs = [RUN, RUN.override(lr=1e30, warmup=0)]
    for resume in (False, True):  # again: the checkpoint holds the lost model too
        with pytest.raises(Diverged, match=r"run 1 .*The other models are whole"):
            train(runs, tmp_path / "both", device="cpu", resume=resume)
        assert not (tmp_path / "both" / runs[1].name / "config.json").exists()
    alone = train(RUN, tmp_path / "alone", device="cpu")
    beside = GPT.from_pretrained(tmp_path / "both" / RUN.name)
    for (name, a), (_, b) in zip(alone.named_parameters(), beside.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    losses = [json.loads(line)["loss"] for line in (tmp_path / "both" / "log.jsonl").read_text().splitlines()]
    assert losses[-1][1] is None


def test_the_command_trains_a_stack_and_prints_json(tmp_path, capsys):
    arguments = ["train", "tiny", "--out", str(tmp_path / "o"), "--device", "cpu", "--prompts", "20", "--json"]
    arguments += ["--set", "steps=70", "warmup=1", "layers=1", "batch=4", "--stack", "seed=1", "seed=2,inputs=uniform"]
    assert main(arguments) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["steps"] for result in results] == [70, 70]
    assert all(result["evaluation"]["ratio"] > 1 for result in results)
    assert main([*arguments, "--resume"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "depth=3"], "'depth=3': must be NAME=VALUE with NAME one of steps"),
        (["--set", "steps=ten"], "steps = 'ten': must be an integer"),
        (["--set", "heads=3"], "width = 32: must be divisible by heads = 3"),
        (["--prompts", "-1"], "prompts = -1: must be an integer of at least 0"),
        (["--set", "seed=1", "seed=2"], "'seed=1,seed=2': seed is given twice. Give it once."),
        (["--stack", "seed=1,seed=2"], "'seed=1,seed=2': seed is given twice. Give it once."),
        (["--resume"], "there is nothing to resume. Leave out resume"),
        (["--device", "tpu"], "device = 'tpu': must be one of"),
        (["--stack", "seed=1", "layers=2"], "differ in model"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(tmp_path, capsys, arguments, words):
    assert main(["train", "tiny", "--out", str(tmp_path / "o"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_tiny_learns_in_two_minutes_on_a_cpu(tmp_path):
    from layerstep.training import PRESETS, evaluate

    began = time.monotonic()
    gpt = train(PRESETS["tiny"], tmp_path, device="cpu")
    assert time.monotonic() - began < 120
    errors = evaluate(gpt, PRESETS["tiny"].task, B=1000, seed=1)
    assert errors.mse[0] > 0.9
    assert errors.mse[-1] < 0.02
