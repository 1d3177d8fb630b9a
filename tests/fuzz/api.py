"""Calls of the public names with what people have at hand: `cd tests; python -m fuzz.api 10000 --seed 1`.

A call passes when it returns, or raises a LayerstepError; a TypeError only where Python itself raises it, for a
signature that is not met. Finite arguments give no NaN. Every argument has values that are taken, odd ones among them,
and each now and then one of JUNK: None, strings, arrays of every kind, huge numbers, and things of other kinds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import random
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerstep as ls
from fuzz.harness import Outcome, time_limit

NAN = math.nan
SIGNATURE = re.compile(r"\(\) (missing|got|takes) ")  # what Python says where a signature is not met
TASK = ls.Task(N=4, d=2)
PROMPTS = ls.sample(TASK, 3, seed=0)
SOLVED = ls.solve(ls.Richardson(), PROMPTS, TASK, 3)
GPT = ls.GPT(ls.Model(layers=1, heads=1, width=4), d=2, N=4).initialise(0).eval()
NETWORK = ls.construct(2, 4, 1.0, 0.5, B_x=1.0, B_y=3.0, scheme="compact", L=2)
PROBES = ls.probe(GPT, TASK, prompts=16)
MANY = ls.sample(TASK, 64, seed=1)
MANY_SOLVED = ls.solve(ls.Richardson(), MANY, TASK, 3)
RUN = ls.PRESETS["tiny"].override(
    layers=1, heads=1, width=4, d=2, N=4, steps=1, warmup=0, batch=2, curriculum_start=1, inputs="sphere"
)
JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 3.7, -0.0, 10**30, 10**400, -(2**63), NAN, math.inf, 1e-320, 1e308, 1j,
    "", "abc", "0.5", "a" * 300, "\0", b"bytes", [], {}, (), set(), [1, 2], [[1.0], [2.0, 3.0]], {"a": 1}, {1: 2},
    [None],
    object(), int, dict, len, lambda *_: None, lambda *_: 1 / 1, range(3), iter([1]), slice(None), Ellipsis,
    NotImplemented,
    np.float32(0.5), np.int64(3), np.bool_(True), np.array(1.0), np.array([]), np.zeros((0, 2)), np.ones((3, 2)),
    np.ones((2, 3, 2)), np.array([1.0, NAN]), np.array([np.inf, 1.0]), np.array(["a", "b"]), np.array([None, 1],
    dtype=object),
    np.ma.masked_array([1.0, 2.0], mask=[True, False]), np.ma.masked, np.array([1 + 2j]), np.ones(3, dtype=np.float16),
    np.datetime64("2020-01-01"), np.array([True, False]), np.zeros(3, dtype=[("a", int)]), np.ones((3, 4))[::-1],
    torch.tensor(1.0), torch.tensor([]), torch.ones(3, 2), torch.ones(3, 5, 2, requires_grad=True), torch.ones(3,
    4).int(),
    torch.ones(2, dtype=torch.complex64), torch.tensor([NAN]), torch.ones(3, 4, dtype=torch.bfloat16),
    torch.empty(3, 4, device="meta"), torch.eye(3).to_sparse(), torch.float32, torch.int8, torch.device("meta"),
    torch.nn.Linear(2, 2), torch.nn.Identity(), Path("nowhere"), Path("/proc/none"), Path("."),
    TASK, PROMPTS, SOLVED, GPT, NETWORK, PROBES, RUN, ls.Model(), ls.Richardson(), ls.Richardson, ls.Task,
    ls.InputError("x"),
]  # fmt: skip

Values = list[Any]
REALS: Values = [1.0, 0.5, 2, np.float32(0.25), np.int64(3), 1e-6, 1e6, 1e-140, 1e140]
COUNTS: Values = [1, 2, 3, 5, np.int64(4), 17]
SEEDS: Values = [0, 1, 7, 2**63, 2**64 - 1, np.uint64(5)]
DTYPES: Values = [torch.float64, torch.float32, "float32", np.float64]
DEVICES: Values = ["cpu", torch.device("cpu")]
TASKS: Values = [TASK, ls.Task(N=3, d=1, inputs="uniform"), ls.Task(N=5, d=3, kernel="arccos1", inputs="gaussian")]
POINTS: Values = [np.ones((3, 5, 2)), torch.randn(3, 5, 2), np.zeros((3, 5, 2)), (1e6 * np.ones((3, 5, 2))).tolist(),
                  1e-300 * np.ones((3, 5, 2)), np.arange(30).reshape(3, 5, 2), 1e100 * torch.randn(3, 5,
                      2).double()]  # fmt: skip
LABELS: Values = [
    np.ones((3, 5)),
    torch.randn(3, 5),
    np.zeros((3, 5)),
    1e150 * np.ones((3, 5)),
    np.arange(15).reshape(3, 5),
]
SAMPLES: Values = [PROMPTS, ls.Prompts(POINTS[1], LABELS[1]), ls.Prompts(POINTS[2], LABELS[2]), PROMPTS.to("float32"),
                   ls.Prompts(POINTS[6], LABELS[3]), PROMPTS[:1]]  # fmt: skip
SOLVER_VALUES: Values = [
    *(s for name, s in ls.SOLVERS.items() if name != "causal-richardson"),
    ls.Richardson(eta=1e-9),
    ls.Richardson(eta=1.0),
]
STEPS: Values = [0, 1, 3, [0, 1, 5], torch.tensor([1, 2]), np.array([0, 100]), [10**6], 10, range(3)]
ROWS: Values = [
    np.ones((3, 2)) / 2,
    torch.randn(3, 2) / 9,
    np.zeros((4, 2)),
    [[0.1, 0.2]],
    np.arange(6).reshape(3, 2) / 9,
]
ROW_LABELS: Values = [np.ones(3), torch.randn(3), np.zeros(4), [1.0], [0.5, -0.5, 2]]
PATHS: Values = [SOLVED, ls.solve(ls.NadarayaWatson(), PROMPTS, TASK, [0.5, 1.5]), PROBES.path(PROMPTS)]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A public call and the values that each of its arguments takes; `rare` is how many times rarer it is."""

    call: Callable[..., Any]
    arguments: Mapping[str, Values]
    given: tuple[str, ...] = ()
    rare: int = 1
    may_raise: tuple[type[Exception], ...] = ()
    but: tuple[type, ...] = ()  # kinds of JUNK that it would work on for minutes, or that raise errors of their own


def _fit(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    return ls.TransformerKRR(**estimator).fit(X, y).predict(X, **options)


def _hooked(model: Any, inputs: Any, modules: Any, prompts: Any, **options: Any) -> Any:
    return ls.Hooked(model=model, inputs=inputs, modules=modules, **options).states(prompts)


def entries(home: Path) -> dict[str, Entry]:
    """Every public call by its name."""
    saved, network, probes, text = home / "model", home / "network", home / "probes", home / "text"
    GPT.save_pretrained(saved)
    NETWORK_FILE = [str(network), network]
    from layerstep.training.huggingface import load_garg, save_huggingface

    NETWORK.save(network)
    PROBES.save(probes)
    text.write_text("no numbers\n")
    new = [str(home / "new"), home / "new" / "deeper"]
    files: Values = [saved, str(saved), network, text, home, home / "nothing"]
    eye, stream = torch.nn.Identity().eval(), lambda p: p.x.repeat_interleave(2, 1)
    prepared = ls.Instrument.prepare(MANY, TASK, bandwidths=(1.0,), ridges=())
    small = {"d": [1, 2], "N": [1, 3], "v": REALS[:6], "lam": [1.0, 0.1, 2, 1e6]}
    return {
        "Task": Entry(ls.Task, {"inputs": ["sphere", "uniform", "gaussian"], "kernel": ["gaussian", "arccos1"],
            "d": COUNTS,
                                "N": COUNTS, "v": REALS, "sigma": REALS, "input_std": REALS}),
        "sample": Entry(ls.sample, {"task": TASKS, "B": COUNTS, "seed": SEEDS, "step": SEEDS, "dtype": DTYPES,
                                    "device": DEVICES}, ("task", "B", "seed")),
        "Prompts": Entry(ls.Prompts, {"x": POINTS, "y": LABELS, "f": [None, *LABELS]}, ("x", "y")),
        "Prompts.to": Entry(PROMPTS.to, {"dtype": DTYPES, "device": DEVICES}),
        "Prompts[]": Entry(PROMPTS.__getitem__, {"sequences": [0, slice(2), [0, 1], np.array([True, False, True]), -1]},
                           ("sequences",), may_raise=(IndexError,)),  # which ends a loop over prompts
        "Prompts.scale_noise": Entry(PROMPTS.scale_noise, {"factor": [0, *REALS, -1.0]}, ("factor",)),
        "exact": Entry(ls.exact, {"prompts": SAMPLES, "task": [TASK, ls.Task(kernel="arccos1", d=2, N=4)]},
                       ("prompts", "task")),
        "solve": Entry(ls.solve, {"solver": SOLVER_VALUES, "prompts": SAMPLES, "task": [TASK], "steps": STEPS},
                       ("solver", "prompts", "task", "steps")),
        "solve_all": Entry(ls.solve_all, {"solvers": [{"a": (ls.Richardson(), 2)}, {}, {"b": (ls.Nesterov(), [1, 4])}],
                                          "prompts": SAMPLES, "task": [TASK], "progress": [None, lambda done: None]},
                           ("solvers", "prompts", "task")),
        "Richardson": Entry(ls.Richardson, {"eta": REALS, "preconditioned": [True, False]}),
        "Chebyshev": Entry(ls.Chebyshev, {"kappa": REALS}),
        "HeavyBall": Entry(ls.HeavyBall, {"eta": REALS, "beta": [0.0, 0.5]}),
        "Trajectory": Entry(ls.Trajectory, {"values": [np.ones((2, 3, 4)), torch.randn(2, 3, 4), SOLVED.values[:2]],
                                            "stages": [[0, 1], torch.tensor([1.5, 2]), np.array([3, 9])],
                                            "label": ["a", ""], "contexts": [None, [1, 2, 3, 4], [2, 4, 6, 8]]},
                            ("values", "stages")),
        "Trajectory.at": Entry(SOLVED.at, {"stage": [0, 1, 2, 3.0, np.int64(1)]}, ("stage",)),
        "Trajectory.mse": Entry(SOLVED.mse, {"target": [PROMPTS.target, np.zeros((3, 4))]}, ("target",)),
        "construct": Entry(ls.construct, {**small, "B_x": REALS, "B_y": REALS, "scheme": ["compact", "exact", "paper"],
                                          "eps": [0.1, 1e-3], "error": [0.1, 1e-6, 1e6], "eta": [0.1, 1], "c": [0.5,
                                              None],
                                          "L": [1, 2, 9], "rho": REALS, "heads": [1, 2], "dtype": DTYPES,
                                          "device": DEVICES}, ("d", "N", "v", "lam")),
        "construct compact": Entry(lambda **given: ls.construct(scheme="compact", **given),
                                   {**small, "B_y": REALS[:5], "error": [0.1, 1e-6, 1e6]}, ("d", "N", "v", "lam", "B_y",
                                                                                          "error")),
        "predict": Entry(NETWORK.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS}, ("x", "y", "xq")),
        "path": Entry(NETWORK.path, {"prompts": SAMPLES, "stages": [None, [0, 2], [1]], "contexts": [None, [1, 4],
            [2]]},
                      ("prompts",)),
        "save": Entry(NETWORK.save, {"path": new}, ("path",)),
        "load": Entry(ls.Construction.load, {"path": [*NETWORK_FILE, *files]}, ("path",)),
        "export": Entry(NETWORK.export, {"folder": new}, ("folder",)),
        "TransformerKRR": Entry(_fit, {"estimator": [{}, {"lam": 1.0}, {"v": 0.5, "scheme": "exact"}, {"scale": False}],
                                       "X": ROWS, "y": ROW_LABELS, "return_bound": [True, False]}, ("estimator", "X",
                                           "y"),
                                may_raise=(ValueError, TypeError)),  # scikit-learn's contract asks for them
        "Model": Entry(ls.Model, {"layers": COUNTS, "heads": [1, 2], "width": [4, 8], "attention": ["softmax",
            "linear"]}),
        "Run": Entry(ls.Run, {"task": TASKS, "model": [ls.Model(), ls.Model(layers=1)], "steps": [100, 5],
            "batch": COUNTS,
                              "seed": [0, 5], "lr": [1e-3, 1], "beta1": [0, 0.9], "precision": ["float32", "float64"],
                              "clip": REALS, "warmup": [0, 3], "curriculum_every": [0, 9]}),
        "Run.from_dict": Entry(ls.Run.from_dict, {"values": [RUN.to_dict(), {}, {"steps": 5}, {"task": {"d": 2}}]},
                               ("values",)),
        "override": Entry(RUN.override, {"lr": REALS[:5], "layers": [1, 2], "d": [1, 3], "inputs": ["uniform"],
            "nonsense": []}),
        "GPT": Entry(ls.GPT, {"model": [ls.Model(layers=1, heads=1, width=4)], "d": [1, 2], "N": [1, 4]},
                     ("model", "d", "N")),
        "GPT()": Entry(GPT.__call__, {"prompts": [PROMPTS, PROMPTS[:1]]}, ("prompts",)),
        "initialise": Entry(lambda seed: ls.GPT(ls.Model(layers=1, heads=1, width=4), d=1, N=2).initialise(seed),
                            {"seed": SEEDS[:3]}, ("seed",)),
        "from_pretrained": Entry(ls.GPT.from_pretrained, {"path": files, "device": DEVICES, "dtype": DTYPES},
            ("path",)),
        "save_pretrained": Entry(GPT.save_pretrained, {"path": [*new, saved], "dtype": DTYPES, "shard_bytes": [100,
            10**9],
                                                       "about": [None, {}, {"a": 1}]}, ("path",)),
        "save_huggingface": Entry(save_huggingface, {"gpt": [GPT], "path": new}, ("gpt", "path"), rare=4),
        "load_garg": Entry(load_garg, {"path": files, "heads": [1]}, ("path", "heads")),
        "evaluate": Entry(ls.evaluate, {"model": [GPT], "task": [TASK], "B": COUNTS, "seed": SEEDS[:3], "block": [1,
            512]},
                          ("model", "task", "B", "seed")),
        "train": Entry(ls.train, {"run": [RUN, [RUN]], "out": [home / "new" / "run"], "device": DEVICES,
            "resume": ["auto"],
                                  "checkpoint_seconds": [60.0, 0], "snapshots": [(), (0.5,)], "progress": [False],
                                  "fused": [None, False]}, ("run", "out"), rare=3),
        "probe": Entry(ls.probe, {"model": [GPT, ls.GPTReader(GPT, True)], "task": [TASK], "prompts": [16, 3],
            "batch": COUNTS,
                                  "seed": SEEDS[:3], "method": ["least-squares", "gradient"], "tokens": ["all", "last"],
                                  "lr": REALS[:3], "label": ["a"]}, ("model", "task", "prompts"), rare=2),
        "Probes.path": Entry(PROBES.path, {"prompts": [PROMPTS, PROMPTS.to("float32")], "batch": [None, 1, 5]},
            ("prompts",)),
        "Probes.save": Entry(PROBES.save, {"file": new}, ("file",)),
        "Probes.load": Entry(ls.Probes.load, {"file": [probes, str(probes), *files], "model": [GPT]}, ("file",
            "model")),
        "self_check": Entry(PROBES.self_check, {"prompts": [PROMPTS], "tolerance": [0.01, 1.0]}, ("prompts",)),
        "match": Entry(ls.match, {"path": PATHS, "reference": PATHS, "target": [PROMPTS, PROMPTS.target]},
                       ("path", "reference", "target")),
        "Match.r2": Entry(ls.match(SOLVED, SOLVED, PROMPTS).r2, {"first": [0, 1], "last": [2, 3]}, ("first", "last")),
        "layers_won": Entry(ls.layers_won, {"matches": [{"a": ls.match(SOLVED, SOLVED, PROMPTS)}, {}], "first": [0, 1]},
                            ("matches",)),
        "Hooked": Entry(_hooked, {"model": [eye], "inputs": [stream], "modules": [[""], ("",)], "prompts": [PROMPTS],
                                  "tokens": [None, range(0, 10, 2), slice(0, None, 2)], "mask": ["causal"]},
                        ("model", "inputs", "modules", "prompts"), but=(torch.nn.Module,)),
        "GPTReader.run": Entry(ls.GPTReader(GPT).run, {"prompts": [PROMPTS], "edits": [{},
            {"embedding": lambda h: 2 * h}]},
                               ("prompts",)),
        "identify": Entry(ls.identify, {"path": [MANY_SOLVED, SOLVED], "prompts": [MANY, PROMPTS], "task": [TASK],
                                        "seed": SEEDS[:3], "rule": [None, ls.Rule()]}, ("path", "prompts", "task"),
                                            rare=6),
        "identify with": Entry(ls.identify, {"path": [MANY_SOLVED], "prompts": [MANY], "task": [TASK],
                                             "instrument": [prepared], "seed": SEEDS[:3], "rule": [None, ls.Rule()],
                                             "model_fn": [None, lambda p: ls.solve(ls.Richardson(), p, TASK, 3)]},
                               ("path", "prompts", "task", "instrument"), rare=2),
        "Instrument.prepare": Entry(ls.Instrument.prepare, {"prompts": [MANY, PROMPTS], "task": [TASK],
                                                            "bandwidths": [(1.0,), [1, 1.1]], "ridges": [(), (2.0,)],
                                                            "families": [ls.FAMILIES, ls.FAMILIES[:2]],
                                                            "contexts": [None, [1, 2], np.array([4])]},
                                    ("prompts", "task", "bandwidths", "ridges"), rare=4),
        "Family": Entry(ls.Family, {"name": ["a"], "kind": ["b"], "solver": SOLVER_VALUES, "steps": STEPS,
                                    "settings": ["all", "own"], "needs": [frozenset(), {"row sums"}]},
                        ("name", "kind", "solver", "steps")),
        "Rule": Entry(ls.Rule, {"v_limit": REALS[:4]}),
        "reproduce": Entry(ls.reproduce, {"out": ["/dev/null/x", text, "a" * 300]}, ("out",), rare=4, but=(str, Path)),
    }  # fmt: skip


def call(entry: Entry, given: dict[str, Any], clean: bool, seconds: float = 20.0) -> Outcome:
    try:
        with time_limit(seconds), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            result = entry.call(**given)
    except ls.LayerstepError as error:
        return Outcome(False, None if len(str(error)) < 1200 else f"a message of {len(str(error))} characters", error)
    except Exception as error:
        unmet = isinstance(error, TypeError) and SIGNATURE.search(str(error))
        if unmet or isinstance(error, entry.may_raise):
            return Outcome(False)
        return Outcome(False, f"{type(error).__name__}: {error}", error)
    return Outcome(True, f"NaN in {place}" if clean and (place := nan_in(result)) else None)


def nan_in(value: Any, place: str = "the result") -> str:
    """Where in a result a NaN is, if anywhere."""
    if isinstance(value, torch.Tensor):
        return place if value.is_floating_point() and bool(value.isnan().any()) else ""
    if isinstance(value, (float, np.ndarray)):
        return place if np.isnan(value).any() else ""
    if hasattr(value, "to_dict") and not isinstance(value, ls.Certificate):
        value = value.to_dict()  # what has no value there is None
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)):
        pairs = list(enumerate(value))
    elif dataclasses.is_dataclass(value):
        pairs = [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
    else:
        pairs = []
    return next((found for key, each in pairs if (found := nan_in(each, f"{place}.{key}"))), "")


def calls(seed: int, home: Path) -> Iterator[tuple[str, Outcome]]:
    """Endless calls, each as the line that shows it, and how it ended."""
    rng = random.Random(seed)
    with contextlib.chdir(home):
        every = entries(home)
        names = list(every)
        while True:
            name = rng.choices(names, [1 / every[each].rare for each in names])[0]
            entry = every[name]
            more = [argument for argument in entry.arguments if argument not in entry.given]
            chosen = [*entry.given, *rng.sample(more, rng.randrange(len(more) + 1))]
            given = {each: rng.choice(entry.arguments[each] or JUNK) for each in chosen}
            clean = rng.random() < 0.6 or not chosen
            if not clean:
                given[rng.choice(chosen)] = rng.choice([each for each in JUNK if not isinstance(each, entry.but)])
                if rng.random() < 0.05 and not entry.but:
                    given.pop(rng.choice(chosen))
            yield (
                f"{name}({', '.join(f'{key}={_shown(each)}' for key, each in given.items())})",
                call(entry, given, clean),
            )
            shutil.rmtree(home / "new", ignore_errors=True)
            (home / "new").unlink(missing_ok=True)


def _shown(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:200]
    except ValueError:  # of more digits than Python writes
        return f"10**{int(math.log10(value))}"


if __name__ == "__main__":
    from fuzz.harness import main

    main(calls)
