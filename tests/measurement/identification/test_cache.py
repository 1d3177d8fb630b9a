"""A kept library is the one that would be built, and whatever is wrong with its file, it is built anew."""

import os
import threading
from dataclasses import replace

import pytest
import torch

import layerstep as ls
from layerstep.measurement import Instrument
from layerstep.measurement.combined.kept_paths import cached_path
from layerstep.measurement.identification import cache, library
from layerstep.measurement.reading.probes import Probes
from layerstep.tasks import Trajectory
from layerstep.training import GPT, Model

TASK = ls.Task(N=8)
PROMPTS = ls.sample(TASK, 64, seed=3)
SMALL = {"bandwidths": (1.0,), "ridges": (4.0,), "families": [f for f in ls.FAMILIES if f.kind in ("cg", "knn")]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSTEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def runs(monkeypatch):
    """How often a library was computed."""
    seen = []
    run = library._run
    monkeypatch.setattr(library, "_run", lambda *given: seen.append(1) or run(*given))
    return seen


def prepare(prompts=PROMPTS, task=TASK, **more) -> Instrument:
    made = Instrument.prepare(prompts, task, cache=True, **SMALL | more)
    for thread in threading.enumerate():
        if thread.name == "layerstep-cache":
            thread.join()
    return made


def test_the_second_call_finds_the_first_ones_table(folder, runs):
    first, second = prepare(), prepare()
    assert len(runs) == 1
    assert torch.equal(first.library.table, second.library.table)
    assert first.library.candidates == second.library.candidates
    assert first.library.hash == second.library.hash == Instrument.prepare(PROMPTS, TASK, **SMALL).library.hash


def test_the_order_of_the_prompts_does_not_matter(folder, runs):
    first, second = prepare(), prepare(PROMPTS[torch.arange(64).flip(0)])
    assert len(runs) == 1
    assert torch.equal(first.library.table, second.library.table)
    assert not torch.equal(first.library.order, second.library.order)


def test_a_candidate_that_diverges_stays_out(folder, runs):
    slow = [f for f in ls.FAMILIES if f.name in ("richardson-slow", "causal-richardson", "boost")]
    hard = replace(TASK, sigma=40.0)
    first, second = prepare(task=hard, families=slow), prepare(task=hard, families=slow)
    assert len(runs) == 1
    assert first.library.candidates == second.library.candidates
    assert first.library.remarks == second.library.remarks


@pytest.mark.parametrize(
    "other",
    [
        {"prompts": ls.sample(TASK, 64, seed=4)},
        {"task": replace(TASK, sigma=0.06)},
        {"task": replace(TASK, kernel="arccos1")},
        {"bandwidths": (1.1,)},
        {"contexts": [2, 5]},
        {"families": SMALL["families"][:1]},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_is_not_the_same_is_made_anew(folder, runs, other):
    prepare()
    prepare(**other)
    assert len(runs) == 2


def test_other_code_makes_it_anew(folder, runs, monkeypatch):
    prepare()
    monkeypatch.setattr(cache, "source_digest", lambda packages: "other")
    prepare()
    assert len(runs) == 2


def test_the_code_it_depends_on_is_there():
    root = cache.Path(library.__file__).parents[2]
    assert all((root / package).is_dir() for package in cache.CODE)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_file_is_made_anew(folder, runs, damage):
    first = prepare()
    [file] = folder.iterdir()
    whole = bytearray(file.read_bytes())
    whole[-100] ^= 1
    file.write_bytes({"cut": whole[:-8], "flipped": whole, "empty": b"", "text": b"no tensors at all"}[damage])
    second = prepare()
    assert len(runs) == 2
    assert torch.equal(first.library.table, second.library.table)
    prepare()
    assert len(runs) == 2


def test_a_kernel_of_the_users_own_is_not_kept(folder, runs, monkeypatch):
    monkeypatch.setitem(ls.KERNELS, "mine", lambda x, z, v: torch.exp(-torch.cdist(x, z) / v))
    task = ls.Task(N=8, kernel="mine")
    prepare(task=task)
    prepare(task=task)
    assert len(runs) == 2
    assert not folder.exists()


def test_the_oldest_goes_where_there_is_no_space(folder, runs, monkeypatch):
    prepare()
    [first] = folder.iterdir()
    left = folder / ".library-x.safetensors.abc.part"
    left.write_bytes(b"by a writer that was killed")
    for path in (first, left):
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(cache, "LIMIT", int(1.5 * first.stat().st_size))
    prepare(task=replace(TASK, sigma=0.06))
    [file] = folder.iterdir()
    assert file != first


def test_without_a_place_nothing_is_kept(tmp_path, runs, monkeypatch):
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("LAYERSTEP_CACHE", place)
        prepare()
    assert len(runs) == 2


def test_the_platforms_place(monkeypatch, tmp_path):
    monkeypatch.delenv("LAYERSTEP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.sys, "platform", "linux")
    assert cache.cache_directory() == tmp_path / "layerstep"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cache.sys, "platform", "darwin")
    assert cache.cache_directory() == tmp_path / "Library" / "Caches" / "layerstep"


def test_writers_at_the_same_time_leave_one_whole_file(folder, runs):
    tensors = {"stayed": torch.ones(2, dtype=torch.bool), "table": torch.rand(50, 64, 3)}
    writers = [threading.Thread(target=cache._write, args=(folder / "library-x.safetensors", tensors)) for _ in "1234"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [file.name for file in folder.iterdir()] == ["library-x.safetensors"]
    found = cache._read(folder / "library-x.safetensors")
    assert found is not None
    assert torch.equal(found["table"], tensors["table"])


def test_what_probes_read_is_kept_for_the_same_weights_and_prompts(folder, monkeypatch):
    probes = ls.probe(GPT(Model(layers=2, heads=2, width=16), d=5, N=8).initialise(1), TASK, prompts=64)
    plain = probes.path(PROMPTS)
    first = cached_path(probes)(PROMPTS)
    for thread in threading.enumerate():
        if thread.name == "layerstep-cache":
            thread.join()
    monkeypatch.setattr(Probes, "path", lambda self, prompts: Trajectory(plain.values + 1, plain.stages))
    again = cached_path(probes)(PROMPTS)
    for each in (first, again):
        assert torch.equal(each.values, plain.values)
        assert torch.equal(each.stages, plain.stages)
        assert each.label == plain.label
    others = [
        cached_path(probes)(PROMPTS[:63]),
        cached_path(replace(probes, weights=tuple(1.0000001 * w for w in probes.weights)))(PROMPTS),
    ]
    probes.reader.model.blocks[1].up.bias.data[3] += 1e-6  # less than what float16 sees
    others.append(cached_path(probes)(PROMPTS))
    assert all(torch.equal(other.values, plain.values + 1) for other in others)
