"""How many files one touches to add a kernel, an input distribution, a family, a figure, a chapter or a verb.

Each is added to a copy of the package, by the edits below and nothing else, and has to arrive everywhere.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Addition:
    """edits: by file, what stands there and what stands before it then. check: Python that fails unless it arrived."""

    edits: dict[str, list[tuple[str, str]]]
    check: str
    files: dict[str, str] = field(default_factory=dict)  # new ones


KERNEL = Addition(
    edits={
        "tasks/kernels.py": [
            ("class Named:", "def cauchy(x, z, v):\n    return 1 / (1 + distance(x, z).square() / v**2)\n\n\n"),
            ('        "arccos1": arccos1,', '        "cauchy": cauchy,\n'),
        ]
    },
    check="""
task = ls.Task(kernel="cauchy", d=2, N=6)
prompts = ls.sample(task, 64, seed=0)
path = ls.solve(ls.Richardson(), prompts, task, [1, 2, 4, 8])
assert ls.identify(path, prompts, task).overall.nearest == "richardson"
assert ls.Run(task=task).from_dict(ls.Run(task=task).to_dict()).task == task
assert main(["solve", "--kernel", "cauchy", "--N", "5", "--prompts", "4", "--solvers", "richardson"]) == 0
assert main(["train", "tiny", "--set", "kernel=cauchy", "steps=2", "warmup=0", "--out", "run", "--prompts", "4"]) == 0
assert main(["list", "kernels"]) == 0
""",
)
INPUTS = Addition(
    edits={
        "tasks/inputs.py": [
            ("INPUTS: dict", "def laplace(z, input_std):\n    return z.abs().log1p().copysign(z)\n\n\n"),
            ("BUILT_IN =", 'INPUTS["laplace"] = laplace\n'),
        ]
    },
    check="""
task = ls.Task(inputs="laplace", d=2, N=6)
prompts = ls.sample(task, 64, seed=0)
path = ls.solve(ls.Richardson(), prompts, task, [1, 2, 4, 8])
assert ls.identify(path, prompts, task).overall.nearest == "richardson"
assert main(["solve", "--inputs", "laplace", "--N", "5", "--prompts", "4", "--solvers", "richardson"]) == 0
assert main(["train", "tiny", "--set", "inputs=laplace", "steps=2", "warmup=0", "--out", "run", "--prompts", "4"]) == 0
assert main(["list", "inputs"]) == 0
""",
)
FLOW = '''"""Gradient flow: steps of gradient descent, infinitely short."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from layerstep.solvers.base import Solver


@dataclass(frozen=True, kw_only=True)
class Flow(Solver):
    continuous: ClassVar[bool] = True

    @property
    def label(self):
        return "Gradient flow"

    def predictions(self, system, steps):
        s = system.ridged.values.unsqueeze(-1)
        return system.ridged.sum(-torch.expm1(-s * steps.to(system.y)) / s)
'''
IMPORT = "from layerstep.solvers.flow import Flow\n"
FAMILY = Addition(
    files={"solvers/flow.py": FLOW},
    edits={
        "measurement/identification/families.py": [
            ("from layerstep.solvers.solving", IMPORT),
            ('    _family("shrink"', '    _family("flow", "flow", log_steps(1e-3, 1e4, 90), Flow()),\n'),
        ],
        "measurement/calibration/planted.py": [
            ("from layerstep.tasks import", IMPORT),
            ('    ("shrink", "shrink"', '    ("flow, geometric", "flow", Flow(), geometric(0.1, 900)),\n'),
        ],
    },
    check="""
import torch
from layerstep.measurement.calibration.planted import calibration_suite
from layerstep.measurement.identification.domains import default_contexts
from layerstep.solvers.flow import Flow
task = ls.Task(d=5, N=20)
prompts = ls.sample(task, 128, seed=0)
path = ls.solve(Flow(), prompts, task, [0.11 * 3**k for k in range(6)])
assert ls.identify(path, prompts, task).overall.nearest == "flow"
suite = calibration_suite(prompts, task, default_contexts(task.N), 0, ["flow, geometric"])
assert [model.solver for model in suite] == ["flow"] * 3
assert main(["list", "families"]) == 0
""",
)
DRAW = '''"""A figure of nothing."""

from matplotlib.figure import Figure

from layerstep.reproduction.figures.result import Result, Table


def of_nothing(numbers):
    return Result(
        name="blank",
        title="A blank",
        caption="Ours.",
        data=1,
        draw=lambda: Figure(figsize=(1, 1)),
        table=lambda: Table(["a"], [[1]]),
        code=__name__,
    )
'''
PAGE = """
from pathlib import Path
from layerstep.reproduction.numbers import Numbers
from layerstep.reproduction.page.chapters import all_results
from layerstep.reproduction.page.document import Section, render
sections = {}
for result in all_results(Numbers()):
    result.write(Path("."))
    sections[result.name] = Section.read(result, Path("."))
page = render(sections, Numbers(), {})
"""
CHAPTERS = "reproduction/page/chapters.py"
FIGURE = Addition(
    files={"reproduction/figures/blank.py": DRAW},
    edits={
        CHAPTERS: [
            ("    capacity,\n", "    blank,\n"),
            ("                solvers.precision(numbers),", "                blank.of_nothing(numbers),\n"),
        ]
    },
    check=PAGE + "assert 'id=\"blank\"' in page and Path('blank.csv').is_file()",
)
CHAPTER = Addition(
    edits={
        CHAPTERS: [
            (
                "CHAPTERS = (",
                'NEXT = Chapter(id="next", title="What next?", short="Next?", answer="Nobody knows.")\n\n',
            ),
            ("\n\ndef all_results", "CHAPTERS += (NEXT,)\n"),
        ]
    },
    check=PAGE + "assert '<a href=\"#next\">Next?</a>' in page and 'Nobody knows.' in page",
)
VERB = Addition(
    files={
        "cli/hello.py": '''"""layerstep hello: says so."""

from layerstep.cli.output import Output


def run(*, name: str = "you") -> Output:
    """Say hello.

    Args:
        name: to whom.
    """
    return Output({"to": name}, [f"hello, {name}"])
'''
    },
    edits={"cli/__init__.py": [('    "bench": "run', '    "hello": "say hello",\n')]},
    check="""
assert main(["hello", "--name", "reader"]) == main(["hello", "--json"]) == main(["--help"]) == 0
assert main(["hello", "--nmae", "x"]) == 2
""",
)
#: What is added, and to how many files that are there; `files` are new ones beside them.
PLACES = {
    "kernel": (KERNEL, 1),
    "input distribution": (INPUTS, 1),
    "identification family": (FAMILY, 2),
    "figure": (FIGURE, 1),
    "chapter": (CHAPTER, 1),
    "verb": (VERB, 1),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_added_in_so_many_files_arrives_everywhere(name, tmp_path):
    addition, places = PLACES[name]
    assert len(addition.edits) == places
    shutil.copytree(SRC, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in addition.files.items():
        (tmp_path / "src" / "layerstep" / file).write_text(text)
    for file, edits in addition.edits.items():
        place = tmp_path / "src" / "layerstep" / file
        text = place.read_text()
        for there, before in edits:
            assert text.count(there) == 1, there
            text = text.replace(there, before + there)
        place.write_text(text)
    code = f"import layerstep as ls\nfrom layerstep.cli import main\n{addition.check}"
    here = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
