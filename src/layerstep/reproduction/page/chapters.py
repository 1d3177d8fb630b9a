"""The story of the page: its chapters, and the results of each. To add a chapter or a result, add it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from layerstep.measurement import CLASSES
from layerstep.reproduction.figures import capacity, constructed, errors, noise, similarity, solvers, steps, verdicts
from layerstep.reproduction.figures.result import Result
from layerstep.reproduction.numbers import DEEP, DISTRIBUTIONS, EVALUATION_SEQUENCES, Numbers
from layerstep.training import Model


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """`intro` is HTML; `explorer`: the id of the interactive part that stands between it and the results (page.html).
    A chapter without results is left out, unless it has an explorer that needs none."""

    id: str
    title: str
    short: str  # in the list of contents
    intro: str
    results: Callable[[Numbers], Iterable[Result | None]] = lambda numbers: ()
    explorer: str = ""


CHAPTERS = (
    Chapter(
        id="construction",
        title="A constructed transformer",
        short="A constructed transformer",
        intro="""<p>Softmax attention can compute kernel sums, and a small MLP can take a step of a solver. So one can
        <em>write</em> the weights of a transformer that solves the system, with nothing trained, and say in advance
        how far its answer can be from the exact one. Move the slider to watch one work.</p>""",
        results=lambda numbers: [constructed.walk(numbers), constructed.schemes(numbers)],
        explorer="walker",
    ),
    Chapter(
        id="explore",
        title="Look for yourself",
        short="Look for yourself",
        intro="""<p>Errors of every model that is here, trained or constructed, beside those of four classical
        solvers. Choose a model, then follow layers and steps for a fixed number of examples n, or compare one layer
        with one step for all n. Move over the chart, or focus it and use the arrow keys, to read values.</p>""",
        explorer="explorers",
    ),
    Chapter(
        id="solvers",
        title="Classical solvers, step by step",
        short="Classical solvers",
        intro=f"""<p>The paper compares with four: preconditioned <b>Richardson</b> (divide the residual by the row
        sums of K, add it to w, repeat) and <b>conjugate gradients</b> on the system, <b>gradient descent</b> and
        <b>Nesterov</b>'s method on the regularized loss. All see the same {EVALUATION_SEQUENCES} prompts.</p>""",
        results=lambda numbers: [
            *(solvers.convergence(numbers, setting) for setting in DISTRIBUTIONS),
            solvers.conditioning(numbers),
            solvers.precision(numbers),
        ],
    ),
    Chapter(
        id="models",
        title="Trained models",
        short="Trained models",
        intro=f"""<p>Transformers of {Model().layers} layers, each trained on prompts with one input distribution:
        points on a sphere, in a cube (uniform), or from a Gaussian. A linear <b>probe</b> reads off every layer what
        the model would answer if it stopped there.</p>""",
        results=lambda numbers: [
            errors.of_model(numbers, "sphere", "Figure 1"),
            errors.of_model(numbers, "uniform", "Figure 4a"),
            errors.of_model(numbers, "gaussian", "Figure 4b"),
            similarity.heat(numbers, "sphere", "Figure 2a"),
            steps.of_model(numbers, "sphere", "Figure 2b"),
            steps.of_model(numbers, "uniform", "Figure 3a"),
            steps.of_model(numbers, "gaussian", "Figure 3b"),
            steps.by_inputs(numbers),
            steps.by_probe(numbers),
            similarity.of_solvers(numbers, DISTRIBUTIONS, "inputs", "Figure 5"),
            constructed.beside_trained(numbers),
            steps.by_seed(numbers),
        ],
    ),
    Chapter(
        id="depth",
        title="Twice as deep",
        short="Twice as deep",
        intro="""<p>Transformers of 24 layers on the sphere, with the kernel of the other experiments (bandwidth v =
        1) and with a wider one (v = 2), whose system is harder to solve.</p>""",
        results=lambda numbers: [
            errors.of_model(numbers, "sphere-24", "Figure 6a"),
            errors.of_model(numbers, "sphere-24-v2", "Figure 6b"),
            similarity.of_solvers(numbers, DEEP, "depth", "Figure 7"),
            steps.by_depth(numbers),
        ],
    ),
    Chapter(
        id="mechanism",
        title="Without softmax, and with another kernel",
        short="Without softmax",
        intro="""<p>The constructed transformer owes its step to two things: softmax, which divides by row sums, and
        the Gaussian kernel, which softmax computes. The paper takes away one at a time.</p>""",
        results=lambda numbers: [
            errors.attention(numbers, "linear"),
            errors.attention(numbers, "linear-mean"),
            errors.of_model(numbers, "arccos1", "section on the arc-cosine kernel"),
            steps.by_kernel(numbers),
            similarity.kernels(numbers),
        ],
    ),
    Chapter(
        id="capacity",
        title="Heads and width",
        short="Heads and width",
        intro="""<p>How large must the model be before it is as good as exact kernel ridge regression, and does its
        size change whose steps its layers are like?</p>""",
        results=lambda numbers: [capacity.heads(numbers), capacity.width(numbers)],
    ),
    Chapter(
        id="verdicts",
        title="Whose steps? The verdict",
        short="The verdict",
        intro=f"""<p>Two predictors that both become good share most of their errors, so a high similarity names
        nothing: predictors that solve no system at all look like Richardson to it. The instrument used here compares
        the <em>way</em> to the solution with {len(CLASSES)} classes of solvers and averages, takes the kernel's width
        and the ridge for unknown, scores on other prompts than those it chooses a class by, and may answer "none".
        How often it errs was measured on planted models whose answer is known, with up to twelve layers, on three
        input distributions with the Gaussian kernel (<code>docs/measurement.md</code>); models of 24 layers and of
        another kernel get their verdict by the same rule, beyond what it was tried on. Solvers among the classes:
        <b>richardson</b> (with row sums or without), <b>richardson-fixed</b> (one step length for all n), <b>gd</b>,
        <b>nesterov</b>, <b>cg</b>, <b>chebyshev</b>. Not solvers: <b>ridge</b> (exact, with a ridge that shrinks from
        layer to layer), <b>shrink</b> (a growing part of the exact answer), <b>nadaraya-watson</b> (kernel averages),
        <b>knn</b> (nearest points), <b>boost</b> (averages of what is left), and what reads the examples one after
        another.</p>""",
        results=lambda numbers: [verdicts.of_all(numbers)],
    ),
    Chapter(
        id="noise",
        title="Noise in the prompt",
        short="Noise",
        intro="""<p>A model is trained with one level of noise in the labels. What if a prompt has less, or more?
        Kernel ridge regression is <b>Bayes-optimal</b> with the ridge λ = σ² of the noise in the prompt; with the
        ridge of the training noise it is what a model would do that has this ridge <b>encoded</b> in its
        weights.</p>""",
        results=lambda numbers: [noise.ridge(numbers), noise.transformers(numbers)],
    ),
)
