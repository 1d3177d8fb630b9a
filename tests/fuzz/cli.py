"""Command lines that nobody would write, and many that one might: `cd tests; python -m fuzz.cli 10000 --seed 1`.

A call passes when it ends with status 0, or with status 2 and one line; JSON is strict and holds no NaN. Half of the
calls are of odd but valid values, so that they reach the work and not only the first check.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.harness import Outcome, time_limit

LONG = "9" * 30
NOT_NUMBERS = ["", "x", "nan ", "1,5", "--", "１２３x", "1e", "0x", "[1]", "None"]
NOT_COUNTS = ["0", "-1", "-9" + LONG, "1.5", "1e3", *NOT_NUMBERS]
NOT_POSITIVE = ["0", "-1", "nan", "inf", "-inf", "1e400", "-0.0", "1e-330", *NOT_NUMBERS]
DIVERGES = r"\.mse\.causal-richardson"  # where its step is too long for the ridge
HUGE = [LONG, "9" * 400, "9" * 5000, str(2**63), str(10**12)]
SEEDS = (["0", "1", "7", "123456789", str(2**63), str(2**64 - 1)], ["-1", str(2**64), "1.5", "abc", *HUGE[:3]])
PATHS = ["", "a" * 300, "é" * 200, "/proc/none/x", "/dev/null/x", "\udcff", "a\0b", "{text}/x", "{dir}", "/proc", "."]
#: Changes of the preset `tiny` that make a run of milliseconds.
TINY = "layers=1,heads=1,width=4,steps=2,batch=2,warmup=0,N=3"
#: By option: values that are taken, values that are not.
TASK = {
    "--inputs": (["sphere", "uniform", "gaussian"], ["torus", "", "Sphere", "0"]),
    "--kernel": (
        ["gaussian", "arccos1", "matern32", "polynomial:3", "rational-quadratic:2", "layerstep.tasks.kernels:linear"],
        ["laplace", "", "polynomial:x", "polynomial:-1", "rational-quadratic:1,2", "no.module:f", "os:getcwd", ":"],
    ),
    "--import": (["math"], ["no_module", "", "a b", "os:getcwd", "x" * 400]),
    "--d": (["1", "2", "3", "7", "33", "+2", "0_5"], [*NOT_COUNTS, *HUGE]),
    "--N": (["1", "2", "3", "5", "9", "1_2"], [*NOT_COUNTS, *HUGE]),
    "--v": (["1", ".5", "2", "1e-3", "1e3", "1e-100", "1e100", "1e-150", "1e150"], NOT_POSITIVE),
    "--sigma": ([".05", ".3", "1", "1e-8", "1e8", "1e-150", "1e150", "1E-3"], NOT_POSITIVE),
    "--input-std": ([".6", "1", "1e-100", "1e100", "1e3"], NOT_POSITIVE),
}
LINEAR = {
    "--task": (["linear"], ["", "Linear", "both"]),
    "--d": (["2"], NOT_COUNTS),
    "--N": (["2", "4"], NOT_COUNTS),
    "--sigma": (["0", ".1", "1e6"], ["-1", "nan", *NOT_NUMBERS]),
    "--covariance": (["1", "1e-9", "1,2", "0,1"], ["0", "-1", "nan", "1,2,3", "1,,2", "x", LONG * 5, ""]),
    "--mean": (["0", "-1e6", "1,2"], ["nan", "1,2,3", "inf", "x", ","]),
    "--prior": (["gaussian", "sparse:1", "sparse:2"], ["sparse", "sparse:0", "sparse:3", "sparse:" + LONG, "", "pool"]),
    "--pool": (["1", "7"], [*NOT_COUNTS, *HUGE]),
    "--v": ([], TASK["--v"][0]),
}
VERBS: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "solve": TASK
    | {
        "--solvers": (
            [
                "richardson",
                "cg,ridge",
                "gd, nesterov",
                "all",
                "knn",
                "boost,shrink",
                "cg,cg",
                "newton-schulz,heavy-ball",
            ],
            ["", ",", "sor", "cg,,ridge", "CG", "all,cg"],
        ),
        "--steps": (["1", "2", "5", "17", "100", "100000", str(10**9)], [*NOT_COUNTS, *HUGE[:3], str(2**53 + 1)]),
        "--prompts": (["1", "2", "5", "20"], [*NOT_COUNTS, *HUGE]),
        "--seed": SEEDS,
        "--target": (["noisy", "noiseless", "exact"], ["", "Noisy", "both"]),
        "--plot": (["{new}.svg"], ["x.gif", "x", *PATHS]),
    },
    "construct": {
        "--scheme": (["compact", "exact"], ["spline", "", "Compact", "adaptive"]),
        "--kernel": (["gaussian", "matern32", "matern12"], ["periodic", "arccos1", "", "matern:2.5", "laplace"]),
        "--kernel-error": ([".1", "1e-3"], ["1e-12", "2", *NOT_POSITIVE]),
        "--degree": (["1", "2", "3"], ["4", *NOT_COUNTS, LONG]),
        "--refresh": (["False"], ["True", "maybe", ""]),
        "--hi": (["2", "3"], ["1e-9", "1e9", *NOT_POSITIVE]),
        "--least": ([".1", "1e-6"], ["1e-20", ".9", *NOT_POSITIVE]),
        "--plot": (["{new}.svg"], ["x.gif", *PATHS]),
        "--d": (["1", "2", "3", "9"], [*NOT_COUNTS, *HUGE]),
        "--N": (["1", "2", "4", "8"], [*NOT_COUNTS, *HUGE]),
        "--v": (["1", ".5", "3", "1e-3", "1e6", "1e-100", "1e100"], NOT_POSITIVE),
        "--lam": (["1", ".1", "10", "1e6", "1e100", "1e-2"], ["1e-300", "1e-30", *NOT_POSITIVE]),
        "--B-x": (["1", "2", "1e-9", "1e9", "1e100"], NOT_POSITIVE),
        "--B-y": (["1", "3", "1e-9", "1e9", "1e100"], NOT_POSITIVE),
        "--error": ([".1", "1e-3", "1e-8", "1", "1e10", "1e-300"], NOT_POSITIVE),
        "--L": (["1", "2", "9"], [*NOT_COUNTS, *HUGE]),
        "--eta": ([".1", "1", ".5"], ["1e-30", "1e-320", "1e300", *NOT_POSITIVE]),
        "--rho": (["1", ".1", "1e9"], NOT_POSITIVE),
        "--heads": (["1", "2"], ["3", *NOT_COUNTS, LONG]),
        "--eps": ([".1", ".01"], ["1", "1e-300", *NOT_POSITIVE]),
        "--c": ([".5", ".9", "None"], ["1", "2", *NOT_POSITIVE[:-1]]),
        "--prompts": (["0", "1", "2"], ["-1", "1.5", *NOT_NUMBERS, *HUGE]),
        "--seed": SEEDS,
        "--csv": (["{csv}"], ["{text}", "{binary}", "{missing}", *PATHS]),
        "--out": (["{new}.safetensors"], PATHS),
        "--export": (["{new}"], PATHS),
    },
    "train": TASK
    | {
        "--steps": (["1", "2", "3"], [*NOT_COUNTS, LONG]),
        "--batch": (["1", "2", "3"], [*NOT_COUNTS, *HUGE]),
        "--model.layers": (["1", "2"], [*NOT_COUNTS, *HUGE, "1000000"]),
        "--model.heads": (["1", "2"], [*NOT_COUNTS, *HUGE]),
        "--model.width": (["4", "8"], ["3", "7", *NOT_COUNTS, *HUGE]),
        "--model.loops": (["1", "2"], [*NOT_COUNTS, *HUGE[:2]]),
        "--model.attention": (["softmax", "linear", "linear-mean"], ["", "sigmoid", "Softmax"]),
        "--lr": (["1e-3", "1", "1e-300"], NOT_POSITIVE),
        "--clip": (["1", "1e-9"], NOT_POSITIVE),
        "--beta1": (["0", ".5"], ["1", "-1", *NOT_NUMBERS]),
        "--curriculum-start": (["1", "3", "1000"], NOT_COUNTS),
        "--curriculum-every": (["0", "1"], ["-1", *NOT_NUMBERS]),
        "--precision": (["float32", "float64", "bfloat16"], ["float8", "", "int8"]),
        "--seed": (SEEDS[0][:4], SEEDS[1]),
        "--set": (
            ["eps=1e-8", "weight_decay=0"],
            ["", "lr", "lr=", "lr=x", "depth=3", "=", "lr=1,lr=2", "steps=" + LONG],
        ),
        "--stack": (["seed=5", "lr=.1"], ["x", "layers=1,seed=1", "seed=-1"]),
        "--checkpoint-seconds": (["0", "60", "1e9"], ["-1", "nan", *NOT_NUMBERS]),
        "--prompts": (["0", "1", "3"], ["-1", "1.5", *NOT_NUMBERS, LONG]),
        "--device": (["cpu"], ["cuda", "tpu", "", "cpu:x", "meta", "0"]),
        "--out": (["{new}"], PATHS),
    },
    "probe": {
        "": (["{model}", "{run}"], ["{text}", "{missing}", "{network}", "{swept}", "{garg}", *PATHS]),
        "--prompts": (["8", "33", "64"], [*NOT_COUNTS, *HUGE]),
        "--batch": (["1", "7", "64", "1000"], [*NOT_COUNTS, LONG]),
        "--method": (["least-squares", "gradient"], ["", "adam"]),
        "--test-prompts": (["1", "3"], [*NOT_COUNTS, *HUGE]),
        "--seed": SEEDS,
        "--device": (["cpu"], ["cuda", "tpu", ""]),
        "--sigma": TASK["--sigma"],
        "--v": TASK["--v"],
        "--d": (["1"], ["2", *NOT_COUNTS, LONG]),
        "--out": (["{new}.safetensors"], PATHS),
    },
    "solve --task=linear": LINEAR | {"--steps": (["1", "7"], NOT_COUNTS), "--solvers": (["all", "gd++,knn"], ["gd+"])},
    "construct --scheme=adaptive": {
        "--degree": (["1", "2", "3"], ["4", *NOT_COUNTS, LONG]),
        "--heads": (["1", "2", "3", "4", "9"], [*NOT_COUNTS, LONG]),
        "--refresh": (["True", "False"], ["maybe", ""]),
        "--hi": (["2", "3", "1.001"], ["1e-9", "1e9", *NOT_POSITIVE]),
        "--least": ([".1", "1e-6", ".5"], ["1e-20", ".9", *NOT_POSITIVE]),
        "--kernel": (["gaussian", "matern32", "rational-quadratic"], ["periodic", ""]),
        "--L": (["1", "9", "40"], [*NOT_COUNTS, *HUGE]),
        "--out": (["{new}.safetensors"], PATHS),
        "--plot": (["{new}.svg"], ["x.gif", *PATHS]),
    },
    "identify --task=linear": {
        "": (["ridge", "gd++", "newton", "{garg}"], ["{swept}", "{odd}", "sor", "krr", *PATHS]),
        "--prompts": (["64", "65"], ["63", *NOT_COUNTS, LONG]),
        "--behaviour-only": (["True"], ["maybe"]),
        "--d": (["2", "3"], NOT_COUNTS),
        "--sigma": LINEAR["--sigma"],
        "--covariance": LINEAR["--covariance"],
        "--prior": LINEAR["--prior"],
        "--plot": (["{new}.svg"], ["x.gif", *PATHS]),
    },
    "identify": {
        "": (
            ["{model}", "ridge", "cg", "{network}", "{run}"],
            ["{swept}", "{text}", "{binary}", "{missing}", "{odd}", "sor", *PATHS],
        ),
        "--interventions": (["True"], ["maybe"]),
        "--probes": (["{probes}"], ["{text}", "{binary}", "{network}", *PATHS]),
        "--probe-prompts": (["8", "33"], [*NOT_COUNTS, *HUGE]),
        "--prompts": (["64", "65"], ["63", *NOT_COUNTS, *HUGE]),
        "--seed": SEEDS,
        "--device": (["cpu"], ["cuda", ""]),
        "--plot": (["{new}.svg"], ["x.gif", *PATHS]),
    },
    "reproduce": {"--out": ([], [*PATHS[:8], "{text}"])},
    "sweep": {
        "": (["tiny"], ["spere", "sphere:tiny", "", ":", "sphere:", "x" * 400]),
        "--out": (["{new}", "{swept}"], PATHS),
        "--set": ([TINY, TINY + ",lr=1e-300"], ["", "lr", "lr=", "lr=x", "=", "lr=1,lr=2", "steps=" + LONG]),
        "--grid": (
            ["seed=0:2", "seed=0,1", "lr=1e-3,1", "attention=softmax,linear", "kernel=gaussian,matern32"],
            ["sed=1", "seed=", "seed=5:2", "seed=0:" + "9" * 30, "=", "lr=nan,nan", "seed=0:9:0", "x" * 400],
        ),
        "--stack": (["1", "2"], [*NOT_COUNTS, *HUGE]),
        "--threads": (["1"], [*NOT_COUNTS, *HUGE[:2]]),
        "--minutes": (["1", "1e-9", "1e9"], NOT_POSITIVE),
        "--prompts": (["0", "3"], ["-1", *NOT_NUMBERS, LONG]),
        "--checkpoint-seconds": (["0", "60", "1e9"], ["-1", "nan", *NOT_NUMBERS]),
        "--status": (["True"], ["maybe"]),
        "--publish": ([], ["True"]),
        "--results": ([], ["{new}", *PATHS]),
        "--device": (["cpu"], ["cuda", "tpu", ""]),
        "--on": ([], ["", "slrum", "none", "=", "x" * 400]),
        "--index": (["0"], ["7", "-1", *NOT_NUMBERS]),
    },
    "runs": {"": (["{swept}", "{dir}", "."], ["{text}", "{missing}", *PATHS]), "--csv": (["True"], ["maybe"])},
    "evaluate": {
        "": (["{run}", "{swept}"], ["{model}", "{text}", "{missing}", *PATHS]),
        "--prompts": (["2", "5"], NOT_COUNTS),
        "--device": (["cpu"], ["cuda", ""]),
    },
    "list": {"": (["solvers", "kernels", "inputs"], ["solver", "", "x" * 400]), "--import": (["math"], ["no_module"])},
    "publish": {"": ([], ["{run}", "{text}", "{missing}", "{model}", *PATHS]), "--out": ([], PATHS)},
    "calibrate": {"--jobs": ([], [*NOT_COUNTS, "abc"]), "--prompts": ([], NOT_COUNTS), "--out": ([], PATHS[:5])},
    "bench": {"--which": ([], ["nothing", "", "All"])},
}
#: What every call of a verb is given, so that it is small; and how often the verb comes.
SMALL = {
    "solve": (["--N=4", "--d=2", "--prompts=3", "--steps=5"], 30),
    "construct": (["--N=3", "--d=1", "--lam=1", "--prompts=1"], 28),
    "solve --task=linear": (["--N=4", "--d=2", "--prompts=3", "--steps=5"], 10),
    "construct --scheme=adaptive": (["--N=3", "--d=1", "--lam=1", "--prompts=1", "--L=5", "--hi=3.5"], 10),
    "train": (
        [
            *("tiny", "--out={new}", "--device=cpu", "--steps=2", "--batch=2", "--warmup=0", "--prompts=2", "--N=3"),
            *("--model.layers=1", "--model.heads=1", "--model.width=4"),
        ],
        16,
    ),
    "probe": (["{model}", "--prompts=32", "--test-prompts=2", "--out={new}.safetensors"], 14),
    "identify": (["ridge", "--prompts=64", "--probe-prompts=32", "--N=3", "--d=1"], 1),
    "reproduce": (["--out=/dev/null/x"], 2),
    "identify --task=linear": (["ridge", "--prompts=64", "--N=3", "--d=2"], 1),
    "sweep": (["tiny", "--out={new}", f"--set={TINY}", "--grid=seed=0:2", "--prompts=2"], 3),
    "runs": (["{swept}"], 3),
    "evaluate": (["{run}", "--prompts=2"], 3),
    "list": ([], 1),
    "publish": (["{missing}", "sphere"], 2),
    "calibrate": (["--show"], 2),
    "bench": (["--which=nothing"], 2),
}
WRONG = [
    "--sequences=3",
    "--figure=x",
    "--stepz=3",
    "-x",
    "--",
    "-",
    "extra",
    "--json=maybe",
    "--help",
    "--N",
    "\ud83d",
]


def command(rng: random.Random) -> list[str]:
    """The words of a call; half of the calls have only values that are taken."""
    if rng.random() < 0.02:
        return rng.choice(
            [[], ["--help"], ["-V"], ["fly"], [""], ["--json"], ["solve", "--help"], ["x" * 5000], ["--N=3"]]
        )
    verb = rng.choices(list(SMALL), [weight for _, weight in SMALL.values()])[0]
    options = VERBS[verb]
    words = {word.partition("=")[0] if word.startswith("--") else "": word for word in SMALL[verb][0]}
    chosen = rng.sample(sorted(options), min(len(options), rng.choice([0, 1, 2, 3, 5])))
    wrong = set(rng.sample(chosen, 1)) if chosen and rng.random() < 0.35 else set()
    for option in chosen:
        taken, refused = options[option]
        pool = refused if option in wrong or not taken else taken
        value = rng.choice(pool)
        words[option] = f"{option}={value}" if option else value
    said = [*verb.split(), *words.values()]
    if rng.random() < 0.3:
        said.append("--json")
    if rng.random() < 0.04:
        said.insert(rng.randrange(1, len(said) + 1), rng.choice([*WRONG, *said]))
    return said


@contextlib.contextmanager
def places(home: Path) -> Iterator[dict[str, str]]:
    """Files and directories of every kind that a call may be pointed to."""
    from layerstep.cli import main
    from layerstep.training import GPT, Model
    from oracles.published import PUBLISHED

    home.mkdir(parents=True, exist_ok=True)
    found = {
        name: str(home / name)
        for name in ("text", "binary", "csv", "dir", "model", "network", "probes", "missing", "odd", "swept", "garg")
    }
    found["run"] = str(home / "swept" / "seed=0")
    (home / "text").write_text("no numbers here\n")
    (home / "binary").write_bytes(bytes(range(256)) * 4)
    (home / "csv").write_text("0.1,1\n0.3,0.5\n0.2,\n")
    (home / "dir").mkdir(exist_ok=True)
    (home / "odd").mkdir(exist_ok=True)
    (home / "odd" / "config.json").write_text('{"model_type": "layerstep-gpt", "about": [1]}')
    GPT(Model(layers=1, heads=1, width=4), d=1, N=3).initialise(0).save_pretrained(home / "model")
    (home / "garg").mkdir(exist_ok=True)
    PUBLISHED["garg"](home / "garg")
    with contextlib.redirect_stdout(io.StringIO()):
        sweep = ["sweep", "tiny", f"--out={found['swept']}", f"--set={TINY}", "--grid=seed=0:2", "--prompts=2"]
        assert main(sweep) == 0
        assert main(["construct", "--d=1", "--N=3", "--lam=1", f"--out={found['network']}"]) == 0
        assert main(["probe", found["model"], "--prompts=64", "--test-prompts=2", f"--out={found['probes']}"]) == 0
    yield found


def call(words: list[str], seconds: float = 20.0) -> Outcome:
    """Run one command in this process, and say what is wrong with how it ended."""
    from layerstep.cli import main
    from layerstep.cli.output import Output

    out, err, data, show = io.StringIO(), io.StringIO(), [], Output.show

    def seen(self: Output, as_json: bool) -> None:
        data.append(self.data)
        show(self, as_json)

    Output.show = seen
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), time_limit(seconds):
            with warnings.catch_warnings():
                status: Any = main(words)
    except (Exception, SystemExit) as error:
        return Outcome(False, f"{type(error).__name__}: {error}", error)
    finally:
        Output.show = show
    return Outcome(status == 0, _wrong(status, out.getvalue(), err.getvalue(), data, "--json" in words))


def _wrong(status: int, out: str, err: str, data: list[Any], as_json: bool) -> str | None:
    lines = [line for line in err.splitlines() if not re.search(r": note: |\d:\d\d left$", line)]
    if status == 2 and (len(lines) != 1 or len(lines[0]) > 1000):
        return f"status 2 with {len(lines)} lines of {max(map(len, lines), default=0)} characters"
    if status not in (0, 2):
        return f"status {status}"
    if data and (place := nan_in(data[0])) and not re.match(DIVERGES, place):
        return f"NaN in {place}"
    if status == 0 and as_json and data:
        try:
            json.loads(out, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            return "stdout is not strict JSON"
    if status == 0 and not as_json and re.search(r"\bnan\b", out):
        return "nan in the text"
    return None


def nan_in(value: Any, place: str = "") -> str:
    """Where in a result a NaN is, if anywhere."""
    if isinstance(value, float):
        return place or "the value" if math.isnan(value) else ""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return next((found for key, each in pairs if (found := nan_in(each, f"{place}.{key}"))), "")


def calls(seed: int, home: Path) -> Iterator[tuple[str, Outcome]]:
    """Endless calls, each as the line that shows it, and how it ended."""
    rng = random.Random(seed)
    with places(home) as found, contextlib.chdir(home):
        for number in range(10**9):
            new = home / f"new{number}"
            words = [word.format_map(found | {"new": str(new)}) for word in command(rng)]
            yield repr(words), call(words)
            for made in home.glob("new*"):
                shutil.rmtree(made) if made.is_dir() else made.unlink()


if __name__ == "__main__":
    from fuzz.harness import main as run

    run(calls)
