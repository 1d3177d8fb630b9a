"""layerstep construct: write a transformer, print what it guarantees, run it."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich import box
from rich.table import Table

from layerstep.cli.options import convert, require_plot
from layerstep.cli.output import Output, table

if TYPE_CHECKING:
    import numpy as np


def _number_or_none(kind: Any, tokens: Any) -> float | None:
    return None if tokens[0].value in ("None", "none") else convert(kind, tokens)


def run(
    *,
    scheme: Literal["compact", "exact", "paper", "adaptive"] = "compact",
    d: int | None = None,
    N: int | None = None,
    v: float = 1.0,
    lam: float = 0.0025,
    kernel: str = "gaussian",
    kernel_error: float | None = None,
    B_x: float | None = None,
    B_y: float | None = None,
    eps: float | None = None,
    error: float | None = None,
    eta: float | None = None,
    c: Annotated[float | None, Parameter(converter=_number_or_none)] = 0.5,
    L: int | None = None,
    rho: float | None = None,
    heads: int | None = None,
    degree: int = 2,
    hi: float | None = None,
    least: float | None = None,
    refresh: bool | None = None,
    csv: Path | None = None,
    prompts: int = 3,
    seed: int = 0,
    out: Path | None = None,
    export: Path | None = None,
    plot: Path | None = None,
) -> Output:
    """Write the weights of a transformer that solves kernel ridge regression; print its certificate; run it.

    The defaults are the paper's experimental setting with a guaranteed error of 0.01.

    Args:
        scheme: compact (smallest), exact (the row-sum preconditioned iteration to rounding), paper (the theorem's) or
            adaptive (fewest blocks: takes what is large of the prompt's own spectrum out of it).
        d: dimension of the inputs (default: 5, or what the CSV file has).
        N: largest number of examples (default: 40, or what the CSV file has).
        v: bandwidth of the kernel.
        lam: the ridge.
        kernel: gaussian, matern12, matern32, matern52, exponential, rational-quadratic or inverse-multiquadric: one
            head for each Gaussian that it is a sum of (compact, adaptive).
        kernel_error: how near the sum of Gaussians has to come to it (default: as near as the error needs).
        B_x: largest norm of an input (default: 1, or what the CSV file has).
        B_y: largest size of a label (default: 3, or what the CSV file has).
        eps: tolerance of the theorem, for the paper's scheme.
        error: guaranteed distance to exact kernel ridge regression (default 0.01 unless eps or L is given).
        eta: constant step size; left out, Chebyshev coefficients (compact, exact) or the largest allowed (paper).
        c: constant of the theorem, for the paper's scheme; None for 2 eps.
        L: number of iterations instead of a guarantee.
        rho: preconditioner D + rho I of the exact scheme.
        heads: most attention heads of a block (exact: 2 or 1; adaptive; compact for a sum of Gaussians).
        degree: of the polynomials that the adaptive scheme takes out, 1, 2 or 3.
        hi: above the spectrum that they leave (adaptive scheme; default: by the theorem, from B_x).
        least: below the singular values of the polynomials (adaptive scheme).
        refresh: two blocks per step (adaptive scheme), as float32 needs.
        csv: a prompt: one line per point, inputs and then the label; lines with an empty label are the queries.
        prompts: number of sampled prompts to run when there is no CSV file.
        seed: seed of the sampled prompts.
        out: write weights and certificate to this safetensors file.
        export: write a model that needs torch only into this directory.
        plot: draw the first prompt block by block, the answer, its bound and what is read, into this file (.png, .svg
            or .pdf).
    """
    import numpy as np

    from layerstep.construction import construct
    from layerstep.errors import require, require_count
    from layerstep.files import require_writable

    require_count(0, prompts=prompts)
    require_plot(plot)
    for place in (out, export and export / "weights.safetensors"):
        if place is not None:
            require_writable(place)
    given: list[tuple[Any, Any, Any]] = []
    if csv is not None:
        x, y, xq = read_prompt(csv)
        require(d in (None, x.shape[1]), "--d", d, f"{x.shape[1]}, as {csv} has", "Leave it out.")
        largest_x = float(np.linalg.norm(np.concatenate([x, xq]), axis=1).max())
        largest_y = float(np.abs(y).max())
        remedy = "Leave it out; with less, the certificate is not about this prompt."
        for option, bound, needed in (("--N", N, len(x)), ("--B-x", B_x, largest_x), ("--B-y", B_y, largest_y)):
            require(bound is None or bound >= needed, option, bound, f"at least {needed:g}, as {csv} has", remedy)
        d, N = x.shape[1], N or len(x)
        B_x = B_x if B_x is not None else largest_x or 1.0
        B_y = B_y if B_y is not None else largest_y or 1.0
        given = [(x, y, xq)]
    if eps is None and error is None and L is None:
        error = 0.01
    network = construct(
        5 if d is None else d,
        40 if N is None else N,
        v,
        lam,
        kernel=kernel,
        kernel_error=kernel_error,
        B_x=1.0 if B_x is None else B_x,
        B_y=3.0 if B_y is None else B_y,
        scheme=scheme,
        eps=eps,
        error=error,
        eta=eta,
        c=c,
        L=L,
        rho=rho,
        heads=heads,
        degree=degree,
        hi=hi,
        least=least,
        refresh=refresh,
    )
    if not network.is_built and csv is None and out is None and export is None:
        prompts = 0  # its certificate is all there is to show
    if csv is None and prompts:
        given = sampled_prompts(network, prompts, seed)
    remedy = "Ask for at least one prompt, or for a network that can be built."
    require(plot is None or len(given) > 0, "--plot", plot, "left out: there is nothing to draw", remedy)
    runs = [run_prompt(network, *prompt) for prompt in given]
    if plot is not None:
        draw(plot, network, *given[0])
    for target, write in ((out, network.save), (export, network.export)):
        if target is not None:
            write(target)
    data = {"certificate": network.certificate.to_dict(), "is_built": network.is_built, "runs": runs}
    drawing = [] if plot is None else [f"figure: {plot}"]
    return Output(data, [*_parts(network, runs), *drawing])


def read_prompt(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [n, d], y [n], xq [M, d] of a CSV file; a first line without numbers is a header."""
    import numpy as np

    from layerstep.errors import FileError, require

    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark first
            reader = csv_module.reader(file)
            lines = [(reader.line_num, line) for line in reader if any(cell.strip() for cell in line)]
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except (UnicodeDecodeError, csv_module.Error) as error:
        raise FileError(f"{path} is not a CSV file in UTF-8 ({error}). Write x1,x2,..,y in every line.") from error
    if lines and not any(_number(cell) is not None for cell in lines[0][1]):
        lines = lines[1:]
    require(len(lines) > 0, "--csv", path, "a file with at least one line of numbers")
    columns = len(lines[0][1])
    require(columns >= 2, "--csv", path, "inputs and a label in every line", "Write x1,x2,..,y.")
    examples, queries = [], []
    for number, line in lines:
        place = f"--csv {path}, line {number}"
        require(len(line) == columns, place, f"{len(line)} values", f"{columns} values, as the first line has")
        cells = [_number(cell) for cell in line]
        remedy = "Numbers up to 1e150 are read."
        require(None not in cells[:-1], place, line, "numbers; only the label may be empty", remedy)
        empty = not line[-1].strip()
        require(empty or cells[-1] is not None, place, repr(line[-1]), "a number, or empty for a query", remedy)
        (queries if empty else examples).append(cells[:-1] if empty else cells)
    require(len(examples) > 0, "--csv", path, "a file with at least one labelled line")
    remedy = "End a line with a comma to leave its label empty."
    require(len(queries) > 0, "--csv", path, "a file with at least one line whose label is empty", remedy)
    table = np.array(examples, dtype=float)
    return table[:, :-1], table[:, -1], np.array(queries, dtype=float)


def _number(cell: str) -> float | None:
    """The number in a cell, if it is one whose square is finite."""
    try:
        return value if abs(value := float(cell)) <= 1e150 else None
    except ValueError:
        return None


def sampled_prompts(network: Any, count: int, seed: int) -> list[tuple[Any, Any, Any]]:
    """Prompts of a Gaussian process on the sphere; labels are clipped to B_y, as the certificate assumes."""
    import math

    from layerstep.tasks import Task, sample

    problem = network.problem
    task = Task(d=problem.d, N=problem.N, v=problem.kernel.v, sigma=math.sqrt(problem.lam))
    drawn = sample(task, count, seed)
    y = drawn.y.clamp(-problem.B_y, problem.B_y)
    return [(drawn.x[b, : task.N], y[b, : task.N], drawn.x[b, task.N :]) for b in range(count)]


def run_prompt(network: Any, x: Any, y: Any, xq: Any) -> list[dict[str, float]]:
    """Value, exact value, error and the parts of the bound, for every query of a prompt."""
    import torch

    from layerstep.tasks.posterior import coefficients

    prediction = network.predict(x, y, xq)
    x, y, xq = (torch.as_tensor(array, dtype=torch.float64) for array in (x, y, xq))
    kernel, lam = network.problem.kernel, network.problem.lam
    exact = kernel(xq, x) @ coefficients(kernel(x, x), y.unsqueeze(-1), lam).squeeze(-1)
    columns = {
        "value": prediction.value,
        "exact": exact,
        "error": (prediction.value - exact).abs(),
        "bound": prediction.bound,
        "iteration": prediction.iteration,
        "readout": prediction.readout,
        "arithmetic": prediction.arithmetic,
    }
    return [{name: column[query].item() for name, column in columns.items()} for query in range(len(xq))]


def draw(file: Path, network: Any, x: Any, y: Any, xq: Any) -> None:
    """`network.plot` of one prompt, into a file."""
    from layerstep.files import write_aside
    from layerstep.plotting import figure, save

    with figure(11.5, 3.4) as fig:
        network.plot(x, y, xq, axes=fig.subplots(1, 3))
    with write_aside(file) as aside:
        save(fig, aside, file.suffix[1:])


def _parts(network: Any, runs: list[list[dict[str, float]]]) -> Iterator[str | Table]:
    certificate = Table(title=f"the {network.certificate.scheme} network", box=box.SIMPLE, show_header=False)
    certificate.add_column(no_wrap=True)
    certificate.add_column(justify="right", no_wrap=True)
    certificate.add_column()
    for row in network.certificate.rows():
        certificate.add_row(*row)
    yield certificate
    if not network.is_built:
        yield "It is too large to build: certified, not built."
    if not runs:
        return
    tiny = all(abs(row["exact"]) < 1e-3 for queries in runs for row in queries)  # which .6f would show as 0
    formats = {"value": ".6e" if tiny else ".6f", "exact": ".6e" if tiny else ".6f"}
    rows = [
        [f"{prompt}.{query}", *(format(value, formats.get(name, ".1e")) for name, value in row.items())]
        for prompt, queries in enumerate(runs, start=1)
        for query, row in enumerate(queries, start=1)
    ]
    yield table(["#", *runs[0][0]], rows, title="predictions, and what their bounds are made of")
