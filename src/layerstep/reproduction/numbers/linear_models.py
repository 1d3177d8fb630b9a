"""Models trained here on in-context linear regression: errors, the field's metric, and our verdict.

    python -m layerstep.reproduction.numbers.linear_models [NAME ...]

measures those of results/linear whose weights are here and keeps what it finds beside them, in measured.json; a
minute each. A report reads these files and never measures. --again: also what was measured before. Interventions are
not among them: their candidates are iterations on kernels without negative values.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerstep.errors import FileError
from layerstep.files import digest, read_json
from layerstep.folders.layout import CONFIG, EVALUATION
from layerstep.measurement import identify
from layerstep.measurement.comparison import compare
from layerstep.measurement.identification.families import Family, log_steps
from layerstep.measurement.identification.linear_tasks import linear_families
from layerstep.measurement.reading.probes import probe
from layerstep.reproduction.numbers.interventions import Reading
from layerstep.reproduction.numbers.planted_paths import COMPARED, LINE
from layerstep.reproduction.numbers.store import from_json, to_json, write_result
from layerstep.reproduction.runs import results_folder
from layerstep.solvers import DiscreteMMSE
from layerstep.tasks import LinearRegression, sample
from layerstep.training import GPT
from layerstep.training.directory import Trained

PROMPTS, FIT, SEED = 256, 2048, 0
MEASURED = "measured.json"


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """One model. task, model: in words. mse, best: its error and the best there is for n = 0..N, beside the noiseless
    answer. sime, slope, r2, nearer_newton, of: as of a planted path. verdict, margin, schedule: of its probes'
    predictions."""

    name: str
    task: str
    model: str
    sigma: float
    pool: int | None
    mse: list[float]
    best: list[float]
    sime: float
    slope: float | None
    r2: float | None
    nearer_newton: int
    of: int
    verdict: Reading
    margin: float | None
    schedule: str | None

    @property
    def over_best(self) -> float | None:
        """Its error over the best one at n = N; None without noise, where the best is 0."""
        return self.mse[-1] / self.best[-1] if self.best[-1] > 1e-9 * self.best[0] else None

    @property
    def learned(self) -> bool:
        """Whether its error at n = N is below a tenth of that with no example, or below twice the best."""
        return self.mse[-1] < 0.1 * self.mse[0] or (self.over_best or math.inf) < 2


def home() -> Path:
    return results_folder() / "linear"


def linear_models() -> dict[str, LinearModel]:
    """What was measured, by name; what cannot be read is left out."""
    found = {}
    for file in sorted(home().glob(f"*/{MEASURED}")) if home().is_dir() else []:
        with contextlib.suppress(FileError, KeyError, TypeError):
            kept = read_json(file)
            if kept["digest"] == digest(kept["data"]):
                found[file.parent.name] = from_json(LinearModel, kept["data"])
    return found


def measure(place: Path) -> LinearModel:
    """The model of a directory, on the task it was trained on."""
    gpt = GPT.from_pretrained(place)
    task = Trained.read(place).run.task
    assert isinstance(task, LinearRegression)
    errors = read_json(place / EVALUATION)["evaluation"]
    prompts = sample(task, PROMPTS, SEED)
    probes = probe(gpt, task, prompts=FIT, seed=SEED)
    path = probes.path(prompts)
    asked = task if task.pool is None else LinearRegression(d=task.d, N=task.N, sigma=task.sigma)
    verdict = identify(path, prompts, asked, families=_families(task), model_fn=probes.path, seed=SEED)
    compared = compare(path, prompts, asked, COMPARED, layers=LINE)
    newton, gd = (compared.matches[name].sime[1:].amax(1) for name in ("newton", "gd"))  # without the embedding
    line = next(row for row in compared.rows if row["solver"] == "newton")
    return LinearModel(
        name=place.name,
        task=repr(task),
        model=_words(gpt),
        sigma=task.sigma,
        pool=task.pool if isinstance(task.pool, int) else None,
        mse=errors["mse"],
        best=errors["krr"],
        sime=float(newton.mean()),
        slope=_finite(line["slope"]),
        r2=_finite(line["r2"]),
        nearer_newton=int((newton > gd).sum()),
        of=len(newton),
        verdict=Reading.of(verdict),
        margin=_finite(verdict.overall.margin),
        schedule=verdict.schedule,
    )


def _families(task: LinearRegression) -> list[Family]:
    """The library's, and the Bayes answer for the pool, where there is one."""
    found = list(linear_families(task))
    if task.pool is not None:
        unit = max(task.sigma, 0.1) ** 2
        steps = [0.0, *(t / unit for t in log_steps(0.01, 10, 40))]
        found.append(
            Family(name="dmmse", kind="dmmse", solver=DiscreteMMSE(pool=task.weights), steps=steps, linear=False)
        )
    return found


def _words(gpt: GPT) -> str:
    model = gpt.model
    layers = f"{model.layers} layer{'s' if model.layers > 1 else ''}"
    layers += f", looped {model.loops} times" if model.loops > 1 else ""
    return f"{layers}, width {model.width}, {model.attention}, {model.mask} mask"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of the models (default: all)")
    parser.add_argument("--again", action="store_true", help="also those measured before")
    given = parser.parse_args(arguments)
    for place in sorted(each.parent for each in home().glob(f"*/{CONFIG}")):
        weights = sorted(place.glob("model*.safetensors"))
        wanted = not given.names or place.name in given.names
        if not wanted or not weights or ((place / MEASURED).is_file() and not given.again):
            continue
        start = time.perf_counter()
        found = measure(place)
        about: dict[str, Any] = {"prompts": PROMPTS, "fit": FIT, "seed": SEED}
        write_result(place / MEASURED, digest(about), to_json(found), start, config=about)
        print(f"{place.name}: {found.verdict.status}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
