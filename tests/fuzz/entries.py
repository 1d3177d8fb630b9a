"""Every public call of the library, with the values that each of its arguments takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerstep as ls
from fuzz.values import (
    ADAPTIVE,
    COUNTS,
    CUBIC,
    DEVICES,
    DTYPES,
    GPT,
    KERNELS,
    LABELS,
    LENGTHS,
    LINEAR,
    LINEAR_PROMPTS,
    LINEAR_SOLVED,
    MANY,
    MANY_SOLVED,
    MIXTURE,
    NETWORK,
    OF_MIXTURE,
    ONE_HEAD,
    PATHS,
    POINTS,
    PROBES,
    PROMPTS,
    RADIAL,
    REALS,
    ROW_LABELS,
    ROWS,
    RUN,
    SAMPLES,
    SEEDS,
    SOLVED,
    SOLVER_VALUES,
    STEPS,
    TASK,
    TASKS,
    Values,
)
from layerstep.construction import calibrate_interval, convergence_data
from layerstep.measurement import intervene, read_three_ways
from layerstep.tasks import task_from_dict
from oracles.published import PUBLISHED


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


def _estimator(**options: Any) -> Any:
    return ls.TransformerKRR(**options).fit(np.arange(8.0).reshape(4, 2), np.arange(4.0)).predict(np.ones((1, 2)))


def _drawn(name: Any) -> Any:
    return ls.sample(ls.Task(N=3, d=2, kernel=ls.import_kernel(name)), 2, seed=0)


def _solved(kind: Any, **options: Any) -> Any:
    if isinstance(kind, type):
        taken = set(getattr(kind, "__dataclass_fields__", ()))
        options = {name: value for name, value in options.items() if name in taken}
    return ls.solve(kind(**options) if isinstance(kind, type) else kind, PROMPTS, TASK, 3)


def _identified(*three: Any, **named: Any) -> Any:
    """`ls.identify` by place: which of its two forms is meant is for it to find out."""
    return ls.identify(*three, *named.values(), prompts=3)


#: What can be called, and then raises an error of its own.
CALLED = (torch.nn.Module, type, type(len))


def _published(name: Any, line: Any, value: Any, **options: Any) -> Any:
    """A published folder with another value in one line of its configuration."""
    folder = Path("new")
    folder.mkdir()
    config = PUBLISHED.get(name if isinstance(name, str) else "garg", PUBLISHED["garg"])(folder) / "config.yaml"
    lines = config.read_text().splitlines()
    number = line % len(lines) if type(line) is int else 0
    lines[number] = f"{lines[number].partition(':')[0]}: {str(value)[:400]}"
    config.write_text("\n".join(lines), errors="replace")
    model, _ = ls.load(folder, **options)
    return model.blocks[0] if isinstance(model, ls.GPT) else model.sites


def _torn(name: Any, tensor: Any, value: Any) -> Any:
    """A published folder without one of its tensors, or with another in its place."""
    folder = Path("new")
    folder.mkdir()
    file = PUBLISHED.get(name if isinstance(name, str) else "garg", PUBLISHED["garg"])(folder) / "state.pt"
    saved = torch.load(file)
    names = sorted(saved["model_state_dict"])
    chosen = names[tensor % len(names)] if type(tensor) is int else str(tensor)
    saved["model_state_dict"].pop(chosen, None)
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        saved["model_state_dict"][chosen] = value.detach()
    torch.save(saved, file)
    return ls.load(folder)[1]


def _plotted(of: Any, *arguments: Any, **options: Any) -> int:
    """How many axes are drawn."""
    from matplotlib import pyplot

    try:
        return len(np.atleast_1d(np.asarray(of.plot(*arguments, **options), dtype=object)))
    finally:
        pyplot.close("all")


def _iterated(network: Any, plot: Any, **prompt: Any) -> Any:
    found = network.iterates(**prompt)
    return _plotted(found) if plot is True else found


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
    published: Values = []
    for name, make in PUBLISHED.items():
        (home / name).mkdir()
        published += [make(home / name), str(home / name / "state.pt")]
    files: Values = [saved, str(saved), network, text, home, home / "nothing"]
    eye, stream = torch.nn.Identity().eval(), lambda p: p.x.repeat_interleave(2, 1)
    prepared = ls.Instrument.prepare(MANY, TASK, bandwidths=(1.0,), ridges=())
    small = {"d": [1, 2], "N": [1, 3], "v": REALS[:6], "lam": [1.0, 0.1, 2, 1e6]}
    return {
        "Task": Entry(ls.Task, {"inputs": ["sphere", "uniform", "gaussian"], "kernel": ["gaussian", "arccos1"],
            "d": COUNTS, "N": COUNTS, "v": REALS, "sigma": REALS, "input_std": REALS}),
        "Task.from_dict": Entry(ls.Task.from_dict, {"values": [TASK.to_dict(), {}, {"d": 2}]}, ("values",)),
        "task_from_dict": Entry(task_from_dict, {"values": [each.to_dict() for each in TASKS]}, ("values",)),
        "Task of a kernel": Entry(ls.Task, {"kernel": KERNELS, "d": COUNTS, "v": REALS}, ("kernel",)),
        "import_kernel": Entry(ls.import_kernel, {"name": ["layerstep.tasks.kernels:gaussian", "operator:mul",
            "numpy:linalg.norm"]}, ("name",)),
        "drawn by name": Entry(_drawn, {"name": ["layerstep.tasks.kernels:matern32", "torch:cdist", "math:hypot",
            "os:getcwd"]}, ("name",)),
        "LinearRegression": Entry(ls.LinearRegression, {"d": [1, 2, 5], "N": COUNTS, "sigma": [0, 0.1, 1, 1e6, 1e-100],
            "covariance": [1.0, 2, 1e-9, 1e50], "mean": [0.0, 1, -1e6], "prior": ["gaussian", "sparse:1"],
            "pool": [None, 1, 5], "pool_seed": SEEDS}),
        "of two dimensions": Entry(ls.LinearRegression, {"d": [2], "covariance": [[1, 2], np.eye(2), [[2, 1], [1,
            2.0]]], "mean": [[0, 1], np.zeros(2)], "pool": [np.ones((3, 2)), [[1, 0.0], [0, 1]]]}, ("d",)),
        "LinearRegression.from_dict": Entry(ls.LinearRegression.from_dict, {"values": [LINEAR.to_dict(), {}, {"d": 3,
            "prior": "sparse:2"}]}, ("values",)),
        "exact of linear": Entry(ls.exact, {"prompts": [LINEAR_PROMPTS, *SAMPLES[:3]], "task": [LINEAR,
            ls.LinearRegression(d=2, N=4, prior="sparse:1"), ls.LinearRegression(d=2, N=4, pool=3)]}, ("prompts",
            "task")),
        "solve linear": Entry(ls.solve, {"solver": SOLVER_VALUES, "prompts": [LINEAR_PROMPTS, *SAMPLES[:3]],
            "task": [LINEAR], "steps": STEPS, "contexts": [[1, 4], [3]]}, ("solver", "prompts", "task", "steps")),
        "solve linear in weights": Entry(ls.solve, {"solver": list(ls.SOLVERS.values()), "prompts": [LINEAR_PROMPTS],
            "task": TASKS[3:], "steps": STEPS}, ("solver", "prompts", "task", "steps")),
        "linear_families": Entry(ls.linear_families, {"task": TASKS[3:]}, ("task",)),
        "compare": Entry(ls.compare, {"path": [SOLVED, LINEAR_SOLVED], "prompts": [PROMPTS, LINEAR_PROMPTS],
            "task": [TASK, LINEAR], "solvers": [["cg"], {"a": (ls.Richardson(), 5)}, ["ridge", "gd++"]],
            "layers": [(2, 10), (0, 3)]}, ("path", "prompts", "task", "solvers"), rare=2),
        "identify linear": Entry(ls.identify, {"path": [LINEAR_SOLVED], "prompts": [LINEAR_PROMPTS], "task": [LINEAR,
            *TASKS[4:]], "seed": SEEDS[:3], "anchor": ["final", None]}, ("path", "prompts", "task"), rare=6),
        "load published": Entry(ls.load, {"path": [*published, *files], "task": [None, LINEAR, TASK], "loops": [None,
            1, 5]}, ("path",)),
        "load a configuration": Entry(_published, {"name": list(PUBLISHED), "line": list(range(30)), "value": [1, 2,
            3, 8, 12, "", "z=f(x*z)", "linear_regression", "softmax", True, "{}"], "loops": [None, 2]}, ("name",
            "line", "value")),
        "load torn tensors": Entry(_torn, {"name": list(PUBLISHED), "tensor": list(range(40)), "value": [None,
            torch.ones(16, 16), torch.ones(16), torch.zeros(3, 16), torch.ones(1, 16)]}, ("name", "tensor", "value"),
            rare=2),
        "interleaved": Entry(_hooked, {"model": [eye], "inputs": [ls.interleaved(), ls.pairs()], "modules": [[""]],
            "prompts": [PROMPTS, *SAMPLES], "mask": ["causal", "open"]}, ("model", "inputs", "modules", "prompts"),
            but=(torch.nn.Module,)),
        "Matern": Entry(ls.Matern, {"nu": [0.5, 1.5, np.float32(2.5)]}),
        "RationalQuadratic": Entry(ls.RationalQuadratic, {"alpha": [0.1, 1, 100, np.int64(3)]}),
        "GaussianMixture": Entry(ls.GaussianMixture, {"weights": [[1.0], (1,), np.ones(1)], "widths": [[1.0], [1e-9],
            np.array([1e9])], "error": [0.0, 0.1], "reach": [1.0, math.inf], "target": [None]}, ("weights",
            "widths")),
        "GaussianMixture.fit": Entry(ls.GaussianMixture.fit, {"target": ["matern52", "rational-quadratic",
            ls.Matern()], "error": [0.1, 1e-3], "reach": [1.0, math.inf, 1e100, 1e-9], "heads": [64, 20]}, ("target",
            "error")),
        "GaussianMixture.from_dict": Entry(ls.GaussianMixture.from_dict, {"fields": [MIXTURE.to_dict(),
            {"weights": [1], "widths": [2]}]}, ("fields",)),
        "construct kernel": Entry(ls.construct, {**small, "v": LENGTHS[:6], "kernel": RADIAL, "B_x": REALS[:5],
            "B_y": REALS[:4], "L": [1, 2, 5], "heads": [None, 1, 2], "eta": [0.1]}, ("d", "N", "v", "lam", "kernel",
            "L")),
        "construct to an error": Entry(ls.construct, {"d": [1, 2], "N": [1, 3], "v": [1.0, 0.5], "lam": [1.0, 10],
            "B_y": [1.0, 3], "kernel": RADIAL, "kernel_error": [None, 0.1], "error": [0.5, 0.1, 10]}, ("d", "N", "v",
            "lam", "kernel", "B_y", "error"), rare=2),
        "construct lengths": Entry(ls.construct, {"d": [2], "N": [1, 3], "lam": [1.0, 0.1], "v": LENGTHS[6:],
            "kernel": RADIAL, "L": [1, 3], "scheme": ["compact"]}, ("d", "N", "v", "lam", "L")),
        "construct adaptive": Entry(lambda **given: ls.construct(scheme="adaptive", **given), {**small, "lam": [1.0,
            0.1, 2], "hi": [2.1, 3], "L": [1, 3, 20], "degree": [1, 2, 3], "least": [0.1, 1e-6, 0.5], "refresh": [True,
            False, None], "heads": [None, 1, 2, 3], "kernel": RADIAL, "dtype": DTYPES, "B_y": REALS[:4]},
            ("d", "N", "v", "lam", "hi", "L")),
        "calibrate_interval": Entry(calibrate_interval, {"prompts": SAMPLES, "v": LENGTHS, "lam": REALS[:7],
            "degree": [1, 2, 3], "margin": [1, 1.3, 100], "kernel": RADIAL}, ("prompts", "v", "lam")),
        "adaptive predict": Entry(ADAPTIVE.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS}, ("x", "y", "xq")),
        "cubic predict": Entry(CUBIC.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS, "budget": [0, 10**6],
            "input_error": [0.0, 1e-9]}, ("x", "y", "xq")),
        "predict of one head": Entry(ONE_HEAD.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS}, ("x", "y", "xq")),
        **{f"iterates {index}": Entry(partial(_iterated, network), {"plot": [False, False, True], "x": ROWS,
            "y": ROW_LABELS, "xq": ROWS, "stages": [None, [0, 2], [1]]}, ("plot", "x", "y", "xq"), rare=8)
            for index, network in enumerate((NETWORK, ADAPTIVE, CUBIC, OF_MIXTURE))},
        "plot": Entry(lambda **given: _plotted(NETWORK, **given), {"x": ROWS, "y": ROW_LABELS, "xq": [None, *ROWS]},
            ("x", "y"), rare=6),
        "plot a path": Entry(lambda **given: _plotted(SOLVED, **given), {"prompts": [None, PROMPTS]}, rare=6),
        "plot a match": Entry(lambda **given: _plotted(ls.match(SOLVED, SOLVED, PROMPTS), **given), {"axes": [None]},
            rare=9),
        "mixture predict": Entry(OF_MIXTURE.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS}, ("x", "y", "xq")),
        "mixture path": Entry(OF_MIXTURE.path, {"prompts": SAMPLES, "stages": [None, [0, 2]], "contexts": [None, [1,
            4]]}, ("prompts",)),
        "convergence_data": Entry(convergence_data, {"network": [NETWORK, ADAPTIVE, OF_MIXTURE],
            "prompts": SAMPLES[:3], "stages": [None, [0, 2]]}, ("network", "prompts")),
        "sample": Entry(ls.sample, {"task": TASKS, "B": COUNTS, "seed": SEEDS, "step": SEEDS, "dtype": DTYPES,
            "device": DEVICES}, ("task", "B", "seed")),
        "Prompts": Entry(ls.Prompts, {"x": POINTS, "y": LABELS, "f": [None, *LABELS]}, ("x", "y")),
        "Prompts.to": Entry(PROMPTS.to, {"dtype": DTYPES, "device": DEVICES}),
        # An IndexError ends a loop over prompts.
        "Prompts[]": Entry(PROMPTS.__getitem__, {"sequences": [0, slice(2), [0, 1], np.array([True, False, True]),
            -1]}, ("sequences",), may_raise=(IndexError,)),
        "Prompts.scale_noise": Entry(PROMPTS.scale_noise, {"factor": [0, *REALS, -1.0]}, ("factor",)),
        "exact": Entry(ls.exact, {"prompts": SAMPLES, "task": [TASK, ls.Task(kernel="arccos1", d=2, N=4)]}, ("prompts",
            "task")),
        "solve": Entry(ls.solve, {"solver": SOLVER_VALUES, "prompts": SAMPLES, "task": [TASK], "steps": STEPS},
            ("solver", "prompts", "task", "steps")),
        "solve_all": Entry(ls.solve_all, {"solvers": [{"a": (ls.Richardson(), 2)}, {}, {"b": (ls.Nesterov(), [1, 4])}],
            "prompts": SAMPLES, "task": [TASK], "progress": [None, lambda done: None]}, ("solvers", "prompts", "task"),
            but=CALLED),
        "Richardson": Entry(ls.Richardson, {"eta": REALS, "preconditioner": ["row-sum", "none"], "step": ["per-prefix",
            "fixed"]}),
        "Chebyshev": Entry(ls.Chebyshev, {"lo": REALS[:3], "hi": [10, 1e6]}),
        "GD++": Entry(ls.GradientDescentPlusPlus, {"gamma": REALS[:3], "eta": REALS[:3], "absolute": [True, False]}),
        "solver of": Entry(_solved, {"kind": [ls.OnlineGD, ls.RidgePath, ls.Shrinkage, ls.CausalGD, ls.DiscreteMMSE,
            ls.Newton, ls.Preconditioned, ls.ConjugateGradient, ls.RecursiveKRR], "scale": REALS, "horizon": REALS,
            "eta": REALS[:4], "start": ["identity"], "pool": [np.ones((2, 2)), torch.randn(5, 2)], "P": [torch.eye(2)],
            "reorthogonalize": [True], "newest_first": [True]}, ("kind",)),
        "Trajectory": Entry(ls.Trajectory, {"values": [np.ones((2, 3, 4)), torch.randn(2, 3, 4), SOLVED.values[:2]],
            "stages": [[0, 1], torch.tensor([1.5, 2]), np.array([3, 9])], "label": ["a", ""], "contexts": [None, [1, 2,
            3, 4], [2, 4, 6, 8]]}, ("values", "stages")),
        "Trajectory.at": Entry(SOLVED.at, {"stage": [0, 1, 2, 3.0, np.int64(1)]}, ("stage",)),
        "Trajectory.mse": Entry(SOLVED.mse, {"target": [PROMPTS.target, np.zeros((3, 4))]}, ("target",)),
        "construct": Entry(ls.construct, {**small, "B_x": REALS, "B_y": REALS, "scheme": ["compact", "exact", "paper"],
            "eps": [0.1, 1e-3], "error": [0.1, 1e-6, 1e6], "eta": [0.1, 1], "c": [0.5, None], "L": [1, 2, 9],
            "rho": REALS, "heads": [1, 2], "dtype": DTYPES, "device": DEVICES}, ("d", "N", "v", "lam")),
        "construct compact": Entry(lambda **given: ls.construct(scheme="compact", **given), {**small, "B_y": REALS[:5],
            "error": [0.1, 1e-6, 1e6]}, ("d", "N", "v", "lam", "B_y", "error")),
        "predict": Entry(NETWORK.predict, {"x": ROWS, "y": ROW_LABELS, "xq": ROWS}, ("x", "y", "xq")),
        "path": Entry(NETWORK.path, {"prompts": SAMPLES, "stages": [None, [0, 2], [1]], "contexts": [None, [1, 4],
            [2]]}, ("prompts",)),
        "save": Entry(NETWORK.save, {"path": new}, ("path",)),
        "load": Entry(ls.Construction.load, {"path": [*NETWORK_FILE, *files]}, ("path",)),
        "export": Entry(NETWORK.export, {"folder": new}, ("folder",)),
        # ValueError and TypeError are what scikit-learn's contract asks for.
        "TransformerKRR": Entry(_fit, {"estimator": [{}, {"lam": 1.0}, {"v": 0.5, "scheme": "exact"},
            {"scale": False}], "X": ROWS, "y": ROW_LABELS, "return_bound": [True, False]}, ("estimator", "X", "y"),
            may_raise=(ValueError, TypeError)),
        "TransformerKRR by name": Entry(_fit, {"estimator": [{"kernel": "matern", "nu": 0.5, "error": 0.1},
            {"alpha": 1.0, "length_scale": 2}, {"gamma": 0.5, "alpha": 1}, {"length_scale": [1.0, 2.0], "lam": 1},
            {"scheme": "adaptive", "L": 5}, {"kernel": "rational-quadratic", "L": 3}, {"normalize_y": False, "lam": 1},
            {"kernel": ls.Matern(nu=2.5), "L": 4, "kernel_error": 0.01}], "X": ROWS, "y": ROW_LABELS,
            "return_bound": [True, False]}, ("estimator", "X", "y"), may_raise=(ValueError, TypeError), rare=2),
        "an estimator of": Entry(_estimator, {"kernel": ["rbf", "matern", MIXTURE], "nu": [1.5], "lam": REALS[:3],
            "v": REALS[:3], "alpha": REALS[:3], "gamma": [1.0], "length_scale": LENGTHS[:3], "scheme": ["compact",
            "adaptive"], "L": [None, 3], "error": [0.1], "B_x": [None, 10.0], "kernel_error": [None, 0.1],
            "scale": [True]}),
        "Model": Entry(ls.Model, {"layers": COUNTS, "heads": [1, 2], "width": [4, 8], "attention": ["softmax",
            "linear"], "loops": COUNTS, "mask": ["causal", "open"]}),
        "Run": Entry(ls.Run, {"task": TASKS, "model": [ls.Model(), ls.Model(layers=1)], "steps": [100, 5],
            "batch": COUNTS, "seed": [0, 5], "lr": [1e-3, 1], "beta1": [0, 0.9], "precision": ["float32", "float64"],
            "clip": REALS, "warmup": [0, 3], "curriculum_every": [0, 9]}),
        "Run.from_dict": Entry(ls.Run.from_dict, {"values": [RUN.to_dict(), {}, {"steps": 5}, {"task": {"d": 2}}]},
            ("values",)),
        "override": Entry(RUN.override, {"lr": REALS[:5], "layers": [1, 2], "d": [1, 3], "inputs": ["uniform"],
            "nonsense": []}),
        "GPT": Entry(ls.GPT, {"model": [ls.Model(layers=1, heads=1, width=4)], "d": [1, 2], "N": [1, 4]}, ("model",
            "d", "N")),
        "GPT()": Entry(GPT.__call__, {"prompts": [PROMPTS, PROMPTS[:1]]}, ("prompts",)),
        "initialise": Entry(lambda seed: ls.GPT(ls.Model(layers=1, heads=1, width=4), d=1, N=2).initialise(seed),
            {"seed": SEEDS[:3]}, ("seed",)),
        "from_pretrained": Entry(ls.GPT.from_pretrained, {"path": files, "device": DEVICES, "dtype": DTYPES},
            ("path",)),
        "save_pretrained": Entry(GPT.save_pretrained, {"path": [*new, saved], "dtype": DTYPES, "shard_bytes": [100,
            10**9], "about": [None, {}, {"a": 1}]}, ("path",)),
        "save_huggingface": Entry(save_huggingface, {"gpt": [GPT], "path": new}, ("gpt", "path"), rare=4),
        "load_garg": Entry(load_garg, {"path": files, "heads": [1]}, ("path", "heads")),
        "evaluate": Entry(ls.evaluate, {"model": [GPT], "task": [TASK], "B": COUNTS, "seed": SEEDS[:3], "block": [1,
            512]}, ("model", "task", "B", "seed")),
        "train": Entry(ls.train, {"run": [RUN, [RUN]], "out": [home / "new" / "run"], "device": DEVICES,
            "resume": ["auto"], "checkpoint_seconds": [60.0, 0], "snapshots": [(), (0.5,)], "progress": [False],
            "fused": [None, False]}, ("run", "out"), rare=3),
        "sweep": Entry(ls.sweep, {"runs": [[RUN], [RUN, RUN.override(seed=1)]], "out": [home / "new" / "swept"],
            "on": [None], "stack": [None, 1, 2], "gpus": [None, 0], "threads": [None, 1], "device": ["cpu", None],
            "prompts": [1, 8], "checkpoint_seconds": [60.0], "snapshots": [(), [0.5]], "wait": [True], "index": [None,
            0], "progress": [False], "then": [None, lambda outcome: 1]}, ("runs", "out"), rare=4,
            but=(torch.nn.Module,)),
        "probe": Entry(ls.probe, {"model": [GPT, ls.GPTReader(GPT, True)], "task": [TASK], "prompts": [16, 3],
            "batch": COUNTS, "seed": SEEDS[:3], "method": ["least-squares", "gradient"], "tokens": ["all", "last"],
            "lr": REALS[:3], "label": ["a"]}, ("model", "task", "prompts"), rare=2),
        "Probes.path": Entry(PROBES.path, {"prompts": [PROMPTS, PROMPTS.to("float32")], "batch": [None, 1, 5]},
            ("prompts",)),
        "Probes.save": Entry(PROBES.save, {"file": new}, ("file",)),
        "Probes.load": Entry(ls.Probes.load, {"file": [probes, str(probes), *files], "model": [GPT]}, ("file",
            "model")),
        "self_check": Entry(PROBES.self_check, {"prompts": [PROMPTS], "tolerance": [0.01, 1.0]}, ("prompts",)),
        "match": Entry(ls.match, {"path": PATHS, "reference": PATHS, "target": [PROMPTS, PROMPTS.target]}, ("path",
            "reference", "target")),
        "Match.r2": Entry(ls.match(SOLVED, SOLVED, PROMPTS).r2, {"first": [0, 1], "last": [2, 3]}, ("first", "last")),
        "layers_won": Entry(ls.layers_won, {"matches": [{"a": ls.match(SOLVED, SOLVED, PROMPTS)}, {}], "first": [0,
            1]}, ("matches",)),
        "Hooked": Entry(_hooked, {"model": [eye], "inputs": [stream], "modules": [[""], ("",)], "prompts": [PROMPTS],
            "tokens": [None, range(0, 10, 2), slice(0, None, 2)], "mask": ["causal"]}, ("model", "inputs", "modules",
            "prompts"), but=(torch.nn.Module,)),
        "GPTReader.run": Entry(ls.GPTReader(GPT).run, {"prompts": [PROMPTS], "edits": [{},
            {"embedding": lambda h: 2 * h}]}, ("prompts",)),
        "identify": Entry(ls.identify, {"path": [MANY_SOLVED, SOLVED], "prompts": [MANY, PROMPTS], "task": [TASK],
            "seed": SEEDS[:3], "rule": [None, ls.Rule()]}, ("path", "prompts", "task"), rare=6),
        "identify with": Entry(ls.identify, {"path": [MANY_SOLVED], "prompts": [MANY], "task": [TASK],
            "instrument": [prepared], "seed": SEEDS[:3], "rule": [None, ls.Rule()], "model_fn": [None,
            lambda p: ls.solve(ls.Richardson(), p, TASK, 3)]}, ("path", "prompts", "task", "instrument"), rare=2),
        "identify a model": Entry(ls.identify, {"model": ["ridge", ls.Richardson(), GPT, NETWORK, saved, str(network)],
            "task": [TASK], "parts": [("behaviour",), ["readings"], ("interventions",)], "prompts": [64], "fit": [32],
            "seed": SEEDS[:3], "head": [None], "probes": [None], "progress": [None, lambda done: None],
            "cache": [False]}, ("model", "task", "prompts", "fit", "parts", "cache"), rare=12),
        "identify junk": Entry(_identified, {"first": [GPT], "second": [TASK], "third": []}, ("first", "second",
            "third"), may_raise=()),
        "intervene": Entry(intervene, {"model": [GPT, ls.GPTReader(GPT)], "task": [TASK], "seed": SEEDS[:2],
            "prompts": [{"fit": 8}], "without": [()], "checks": [False]}, ("model", "task", "prompts"), rare=12),
        "read_three_ways": Entry(read_three_ways, {"model": [GPT], "task": [TASK], "prompts": [PROMPTS, MANY],
            "fit": [32, 8], "batch": [1, 64], "seed": SEEDS[:3], "head": [None]}, ("model", "task", "prompts", "fit"),
            rare=2),
        "Instrument.prepare": Entry(ls.Instrument.prepare, {"prompts": [MANY, PROMPTS], "task": [TASK],
            "bandwidths": [(1.0,), [1, 1.1]], "ridges": [(), (2.0,)], "families": [ls.FAMILIES, ls.FAMILIES[:2]],
            "contexts": [None, [1, 2], np.array([4])]}, ("prompts", "task", "bandwidths", "ridges"), rare=4),
        "Family": Entry(ls.Family, {"name": ["a"], "kind": ["b"], "solver": SOLVER_VALUES, "steps": STEPS,
            "settings": ["all", "own"], "needs": [frozenset(), {"row sums"}]}, ("name", "kind", "solver", "steps")),
        "Rule": Entry(ls.Rule, {"v_limit": REALS[:4]}),
        "reproduce": Entry(ls.reproduce, {"out": ["/dev/null/x", text, "a" * 300]}, ("out",), rare=4, but=(str,
            Path)),
    }  # fmt: skip
