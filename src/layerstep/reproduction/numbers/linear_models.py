"""Models trained here on in-context linear regression: errors, the field's metric, and our verdict.

`layerstep reproduce --measure missing` measures those of results/linear whose weights are here, about a minute each,
and keeps what it finds beside them, in measured.json. Interventions are not among them:
`ls.identify(model, task)` runs them, with the candidates of linear tasks.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerstep.errors import FileError
from layerstep.files import digest, read_json
from layerstep.folders.layout import EVALUATION
from layerstep.measurement import identify
from layerstep.measurement.identification.families import Family, log_steps
from layerstep.measurement.identification.linear_tasks import linear_families
from layerstep.measurement.reading.probes import probe
from layerstep.reproduction.numbers.interventions import Reading
from layerstep.reproduction.numbers.planted_paths import field_metric
from layerstep.reproduction.numbers.store import code_identity, from_json, read_result, to_json, write_result
from layerstep.reproduction.runs import results_folder
from layerstep.solvers import DiscreteMMSE
from layerstep.tasks import LinearRegression, sample
from layerstep.training import GPT
from layerstep.training.directory import Trained
from layerstep.training.evaluation import Evaluation

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


def read_linear_models() -> dict[str, LinearModel]:
    """What was measured, by name; what cannot be read is left out."""
    found = {}
    for file in sorted(home().glob(f"*/{MEASURED}")) if home().is_dir() else []:
        with contextlib.suppress(FileError, TypeError):
            kept = read_json(file)
            if isinstance(kept, dict) and kept.get("digest") == digest(kept.get("data")):
                found[file.parent.name] = from_json(LinearModel, kept.get("data"))
    return found


def measure(place: Path) -> LinearModel:
    """The model of a directory, on the task it was trained on."""
    gpt = GPT.from_pretrained(place)
    task = Trained.read(place).run.task
    assert isinstance(task, LinearRegression)
    errors = Evaluation.from_dict(read_json(place / EVALUATION)["evaluation"])
    prompts = sample(task, PROMPTS, SEED)
    probes = probe(gpt, task, prompts=FIT, seed=SEED)
    path = probes.path(prompts)
    asked = task if task.pool is None else LinearRegression(d=task.d, N=task.N, sigma=task.sigma)
    verdict = identify(path, prompts, asked, families=_families(task), model_fn=probes.path, seed=SEED)
    metric = field_metric(path, prompts, asked, first=1)  # without the embedding
    return LinearModel(
        name=place.name,
        task=repr(task),
        model=_words(gpt),
        sigma=task.sigma,
        pool=task.pool if isinstance(task.pool, int) else None,
        mse=errors.mse.tolist(),
        best=errors.krr.tolist(),
        sime=metric.sime,
        slope=_finite(metric.slope),
        r2=_finite(metric.r2),
        nearer_newton=metric.nearer_newton,
        of=metric.of,
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


def measure_linear_models(say: Callable[[str], None], *, again: bool = False) -> None:
    """Measure the models whose weights are here and of which nothing is kept; again: and what other code measured."""
    about: dict[str, Any] = {"prompts": PROMPTS, "fit": FIT, "seed": SEED}
    identity = digest({**about, "code": code_identity(__name__)})
    for place in sorted({weights.parent for weights in home().glob("*/model*.safetensors")}):
        file = place / MEASURED
        if read_result(file, identity) is None if again else not file.is_file():
            say(f"measuring {place.name}")
            start = time.perf_counter()
            write_result(file, identity, to_json(measure(place)), start, config=about)
