"""Slurm through submitit: one array job; jobs go on when the driver has died, and a later call attaches to them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerstep.engines.choice import installed
from layerstep.engines.pool import Engine, Function
from layerstep.errors import InputError, LayerstepError, in_words

GONE = 2  # times in a row that squeue does not list a job before it counts as ended
SETTLE = 60.0  # seconds in which the result of a job that ended may still be on its way through a network disk


class Requeued:
    """A unit that a time limit or a preemption interrupts is queued again, and goes on from its checkpoint."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __call__(self, argument: str) -> dict[str, Any]:
        return self.function(argument)

    def checkpoint(self, argument: str) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, argument)


class Slurm(Engine):
    """submitit's executor; which jobs live is asked of squeue, for not every cluster has accounting."""

    name = "slurm"
    keeps_jobs = True
    every = 30.0

    def __init__(
        self,
        folder: Path,
        executor: Any = None,
        *,
        gpus: int | None,
        threads: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self.submitit = installed("submitit")
        # What is in it is unpickled: nobody else may write there.
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        self.folder = folder if executor is None else Path(executor.folder)
        parameters = dict(options)
        self.gpus = 1 if gpus is None else gpus
        self.threads = threads or int(parameters.get("cpus_per_task") or 1)
        self.slots = parameters.get("slurm_array_parallelism")
        self.at_once = float("inf")
        if executor is None:
            executor = self.submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=10_000)
            parameters.setdefault("cpus_per_task", self.threads)
            parameters.setdefault("name", "layerstep")
            parameters.setdefault("slurm_array_parallelism", 1000)
            if self.gpus:
                parameters.setdefault("gpus_per_node", self.gpus)
        try:
            executor.update_parameters(**parameters)
        except (NameError, TypeError, ValueError, AssertionError) as error:
            raise InputError(f"options of on = 'slurm': {in_words(error)}") from error
        self.executor = executor
        self.futures: list[SlurmFuture] = []

    def submit(self, function: Function, arguments: Sequence[str]) -> list[Any]:
        requeued = Requeued(function)
        try:
            with self.executor.batch():
                jobs = [self.executor.submit(requeued, argument) for argument in arguments]
        except (self.submitit.core.utils.FailedJobError, subprocess.SubprocessError) as error:
            raise LayerstepError(f"sbatch refused the jobs: {in_words(error)}") from error
        futures = [SlurmFuture(job) for job in jobs]
        self.futures += futures
        return futures

    def job_of(self, future: Any) -> str:
        return future.job.job_id

    def attach(self, job: str) -> Any:
        future = SlurmFuture(self.submitit.SlurmJob(self.folder, job))
        self.futures.append(future)
        return future

    def refresh(self) -> None:
        live = live_jobs()
        if live is None:
            return
        self.futures = [future for future in self.futures if not future.done()]
        for future in self.futures:
            if future.job.job_id in live:
                future.missing, future.ended = 0, 0.0
                continue
            future.missing += 1
            if future.missing == GONE:
                future.ended = time.monotonic()


def live_jobs() -> set[str] | None:
    """My jobs that wait or run, None where Slurm does not answer."""
    command = ["squeue", "--me", "-h", "-r", "-o", "%i|%A"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {name for line in found.split() for name in line.split("|")}


class SlurmFuture:
    """A job: its result is a file; it is lost where squeue does not list it and no file comes."""

    def __init__(self, job: Any) -> None:
        self.job, self.missing, self.ended = job, 0, 0.0

    def done(self) -> bool:
        if self.job.paths.result_pickle.exists():
            return True
        return self.ended > 0 and time.monotonic() - self.ended > self._patience

    @property
    def _patience(self) -> float:
        """A job that left words about its end will write no result."""
        return 0.0 if _last_words(self.job) else SETTLE

    def result(self) -> Any:
        if not self.job.paths.result_pickle.exists():
            words = _last_words(self.job) or "no word of it"
            raise LayerstepError(f"Slurm job {self.job.job_id} ended: {words}")
        outcome, result = self.job._get_outcome_and_result()
        if outcome == "error":
            raise LayerstepError(str(result))
        return result


def _last_words(job: Any) -> str:
    """The last line of its error stream, where Slurm says what it did to the job."""
    try:
        lines = [line.strip() for line in job.paths.stderr.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    told = [line for line in lines if "slurmstepd" in line or "srun: error" in line or "Killed" in line]
    return told[-1] if told else ""
