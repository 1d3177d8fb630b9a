"""The story of the page: six questions, each with one figure first and everything else folded.

To add a result, name it in a part; to add a part or a chapter, add it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from layerstep.measurement import CLASSES
from layerstep.reproduction.claims.interventions import in_words, kernels_in_words, probed
from layerstep.reproduction.figures import (
    capacity,
    constructed,
    errors,
    networks,
    noise,
    open_mask,
    overview,
    published,
    responses,
    similarity,
    solvers,
    steps,
    verdicts,
)
from layerstep.reproduction.figures.result import Result
from layerstep.reproduction.numbers import DEEP, DISTRIBUTIONS, EVALUATION_SEQUENCES, Numbers
from layerstep.training import Model

Results = Callable[[Numbers], Iterable[Result | None]]
#: What page.html has a block of its own for.
Block = Literal["", "walker", "errors", "similarity", "claims", "numbers", "runs", "protocol", "made"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A folded part of a chapter: words (HTML), then its block of page.html or its results, one seen at a time."""

    id: str
    title: str
    intro: str = ""
    results: Results = lambda numbers: ()
    block: Block = ""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A question. `answer` is HTML of at most 150 words; `first` the figures that are open, `block` before them."""

    id: str
    title: str
    short: str  # in the list of contents
    answer: str | Callable[[Numbers], str]
    first: Results = lambda numbers: ()
    block: Block = ""
    parts: tuple[Part, ...] = ()

    def said(self, numbers: Numbers) -> str:
        return self.answer if isinstance(self.answer, str) else self.answer(numbers)


#: The picture of the first screen.
HERO: Results = lambda numbers: [overview.errors_by_layer(numbers), overview.unexplained(numbers)]  # noqa: E731

CONSTRUCTION = Chapter(
    id="construction",
    title="Can a solver be written as a transformer?",
    short="Can one be written?",
    answer="""<p><b>Yes.</b> Softmax attention computes kernel sums, and a small MLP takes a step of a solver. So one
    can <em>write</em> the weights of a transformer that solves the kernel system, with nothing trained, and say in
    advance how far its answer can be from the exact one. Move the slider to watch one work on one prompt.</p>""",
    block="walker",
    parts=(
        Part(
            id="promises",
            title="What is promised, what is reached, and how large the networks are",
            results=lambda numbers: [constructed.schemes(numbers), constructed.walk(numbers)],
        ),
    ),
)


def _trained(numbers: Numbers) -> str:
    silent, known = probed(numbers)
    shown = f""" Such probes name {known - silent} of {known} networks that do run a solver, made by hand or trained to
    (see {_link("before", "these networks")})."""
    return f"""<p><b>Read by probes, their predictions follow none of the solvers tried, and that is not evidence.</b> A
    linear <b>probe</b> reads the best prediction there is off every layer. The way of these predictions to the exact
    solution is compared with {len(CLASSES)} classes of solvers and averages, with the kernel's width and the ridge
    unknown. Controls whose predictions are known lie left of the line and are named; all trained models lie right of
    it. But a probe fitted on the labels reads the best prediction in a state, whoever uses it, and not the state of an
    iteration.{shown if known else ""} What a layer does shows when one writes into it.</p>"""


def _link(place: str, words: str) -> str:
    return f'<a href="#{place}">{words}</a>'


TRAINED = Chapter(
    id="models",
    title="Do trained transformers follow a solver?",
    short="Do trained ones?",
    answer=_trained,
    first=lambda numbers: [overview.verdict_axis(numbers)],
    parts=(
        Part(
            id="verdicts",
            title="Every class on every model: the full table",
            intro="""<p>Two predictors that both become good share most of their errors, so a high similarity names
            nothing. The instrument compares the <em>way</em> to the solution, scores on other prompts than those it
            chooses a class by, and may answer "none". Solvers among the classes: <b>richardson</b> (with row sums or
            without), <b>richardson-fixed</b> (one step length for all n), <b>gd</b>, <b>nesterov</b>, <b>cg</b>,
            <b>chebyshev</b>. Not solvers: <b>ridge</b> (exact, with a ridge that shrinks from layer to layer),
            <b>shrink</b> (a growing part of the exact answer), <b>nadaraya-watson</b> (kernel averages), <b>knn</b>
            (nearest points), <b>boost</b> (averages of what is left), and what reads the examples one after another.
            </p>""",
            results=lambda numbers: [verdicts.of_all(numbers)],
        ),
        Part(
            id="explore",
            title="Look for yourself: errors by layer, step and number of examples",
            intro="""<p>Choose a model, then follow layers and steps for a fixed number of examples n, or compare one
            layer with one step for all n. Move over the chart, or focus it and use the arrow keys, to read
            values.</p>""",
            block="errors",
        ),
        Part(
            id="alike",
            title="Which step is a layer most like? The paper's similarity",
            intro="""<p>For every layer (across) and every step of a solver (up): how alike their errors are, 1 is the
            same (SimE, the paper's measure). Squares mark the most similar step of each layer. Steps are on a
            logarithmic scale. R² is that of the steps most similar prompt by prompt, as in the paper.</p>""",
            block="similarity",
        ),
        Part(
            id="by-layer",
            title="Errors by layer, and best-matching steps: the paper's figures 1 to 5",
            intro=f"""<p>Transformers of {Model().layers} layers, each trained on prompts with one input distribution:
            points on a sphere, in a cube (uniform), or from a Gaussian.</p>""",
            results=lambda numbers: [
                constructed.beside_trained(numbers),
                errors.of_model(numbers, "sphere", "Figure 1"),
                errors.of_model(numbers, "uniform", "Figure 4a"),
                errors.of_model(numbers, "gaussian", "Figure 4b"),
                similarity.heat(numbers, "sphere", "Figure 2a"),
                steps.of_model(numbers, "sphere", "Figure 2b"),
                steps.of_model(numbers, "uniform", "Figure 3a"),
                steps.of_model(numbers, "gaussian", "Figure 3b"),
                steps.by_inputs(numbers),
                similarity.of_solvers(numbers, DISTRIBUTIONS, "inputs", "Figure 5"),
            ],
        ),
        Part(
            id="probe-and-seed",
            title="How much depends on the probe and on the seed of training",
            results=lambda numbers: [steps.by_seed(numbers), steps.by_probe(numbers)],
        ),
        Part(
            id="depth",
            title="Twice as deep",
            intro="""<p>Transformers of 24 layers on the sphere, with the kernel of the other experiments (bandwidth v
            = 1) and with a wider one (v = 2), whose system is harder to solve.</p>""",
            results=lambda numbers: [
                steps.by_depth(numbers),
                errors.of_model(numbers, "sphere-24", "Figure 6a"),
                errors.of_model(numbers, "sphere-24-v2", "Figure 6b"),
                similarity.of_solvers(numbers, DEEP, "depth", "Figure 7"),
            ],
        ),
        Part(
            id="mechanism",
            title="Without softmax, and with another kernel",
            intro="""<p>The constructed transformer owes its step to two things: softmax, which divides by row sums,
            and the Gaussian kernel, which softmax computes. The paper takes away one at a time.</p>""",
            results=lambda numbers: [
                errors.attention(numbers, "linear"),
                errors.attention(numbers, "linear-mean"),
                errors.of_model(numbers, "arccos1", "section on the arc-cosine kernel"),
                steps.by_kernel(numbers),
                similarity.kernels(numbers),
            ],
        ),
        Part(
            id="capacity",
            title="Heads and width",
            intro="""<p>How large must the model be before it is as good as exact kernel ridge regression, and does its
            size change whose steps its layers are like?</p>""",
            results=lambda numbers: [capacity.heads(numbers), capacity.width(numbers)],
        ),
    ),
)


def _instead(numbers: Numbers) -> str:
    if not numbers.interventions:
        return """<p>A model is trained with one level of noise in the labels. Near it trained models follow the ridge
        of the training noise; far from it neither this one nor the best one.</p>"""
    return f"""<p><b>A bump is written into what an early layer holds of one example, and followed.</b> Where a
    network runs Richardson's iteration, made by hand or trained to, it spreads as the solver says (orange). In the
    model trained on labels it does not: a bump of the residual is gone before the output, and one of the coefficient
    stays narrow, where the iteration makes it broad. {in_words(numbers)} {kernels_in_words(numbers)}</p>"""


INSTEAD = Chapter(
    id="instead",
    title="What do they do instead?",
    short="What instead?",
    answer=_instead,
    first=lambda numbers: [responses.bump(numbers), responses.kernels(numbers)],
    parts=(
        Part(
            id="written-into",
            title="Every network that was written into, layer by layer",
            intro="""<p>White noise is written into the state of all examples, in the direction that carries a solver's
            state with the inputs kept as they are, and the output is watched. Solver, form, kernel width and steps left
            are searched; what is reported is what the best of them leaves on other prompts. Of the 27 trained models
            three have their weights here; of the others only what probes read is here, which cannot decide. Networks
            that are known stand beside: made by hand, trained with interventions to run a solver, decoys that hold a
            solver's state and do not use it, untrained ones. The table says what the rule claims, and what probes and
            the network's own head say of the same network.</p>""",
            results=lambda numbers: [networks.axis(numbers)],
        ),
        Part(
            id="before",
            title="What was claimed before, and why it was not evidence",
            intro="""<p>This page used to say that no trained transformer follows a solver, because probes fitted on the
            labels follow none. Networks that were trained to run a solver, and do, get the same answer from the same
            probes. Their own heads, put after every layer, name the solver of those that add their prediction up (the
            functional form); those that form it in the last layers (the dual form) need interventions.</p>""",
            results=lambda numbers: [networks.readings(numbers)],
        ),
        Part(
            id="open-mask",
            title="The theorem's own setting: an open mask",
            intro="""<p>The paper's theorem is about an open mask, its trained models are causal. Under a causal mask no
            token can hold a coefficient of a solver of every prefix: it differs from prefix to prefix, and the token
            sees none of the later points. So a causal model cannot run the theorem's iteration as it stands, and only
            causal solvers are looked for there. The same model with an open mask could. On uniform and Gaussian inputs
            it becomes as good as the exact answer; on the sphere its training passed its best loss and went up again,
            with both seeds. What such a model, well trained, does on the sphere is therefore open: it takes another
            training run on a GPU.</p>""",
            results=lambda numbers: [open_mask.training(numbers)],
        ),
        Part(
            id="noise",
            title="Noise that training did not see: the encoded and the best ridge",
            intro="""<p>A model is trained with one level of noise in the labels. What if a prompt has less, or more?
            Kernel ridge regression is <b>Bayes-optimal</b> with the ridge λ = σ² of the noise in the prompt; with the
            ridge of the training noise it is what a model would do that has this ridge <b>encoded</b> in its weights.
            Trained models follow the encoded ridge near the noise of training, and neither of the two far from
            it.</p>""",
            results=lambda numbers: [noise.transformers(numbers), noise.ridge(numbers)],
        ),
    ),
)

PUBLISHED = Chapter(
    id="claims",
    title="What of the paper's claims?",
    short="The paper's claims",
    answer="""<p>The paper's claims in our words, and what our models say. Open a row for the checks that decide it: ✓
    as claimed, ✗ not, ≈ inconclusive, since another seed or other prompts might say otherwise.</p>""",
    block="claims",
    parts=(Part(id="numbers", title="Every quoted number, the paper's and ours", block="numbers"),),
)


def _others(numbers: Numbers) -> str:
    models = [model for model in numbers.linear_models.values() if model.learned]
    named = [model for model in models if model.verdict.solver]
    if models:
        here = f"""It names a solver for {len(named)} of {len(models)} models trained here."""
    elif numbers.linear_models:
        here = """None of the models trained here learned the task, so none is asked."""
    else:
        here = """Models trained by the published protocols are not here yet."""
    return f"""<p>For linear regression others have claimed gradient descent, Newton's iteration, least squares. <b>The
    evidence cannot tell these apart.</b> Under the metric that named Newton, paths of gradient descent, conjugate
    gradients and a ridge that falls look like Newton's, too. The instrument tells them apart by what each leaves.
    {here} The claims may be right: their own models are not here.</p>"""


OTHERS = Chapter(
    id="others",
    title="What of other published claims?",
    short="Other claims",
    answer=_others,
    first=lambda numbers: [published.planted(numbers)],
    parts=(
        Part(
            id="trained-linear",
            title="Models trained on linear regression",
            intro="""<p>By the protocols of Garg, Raventós, Yang and others: softmax or linear attention, a causal or an
            open mask, weights from a pool, one block looped. A model is shown here if it learned.</p>""",
            results=lambda numbers: [published.trained(numbers)],
        ),
    ),
)

KNOWN = Chapter(
    id="known",
    title="How do we know?",
    short="How do we know?",
    answer="""<p>Every number here is made by one command from files in the repository, and every rule was tried on
    models whose answer is known: constructed transformers, solvers' own paths, and averages that solve nothing. How
    often it errs is in the documentation, with the command that counts. Below: how fast the classical solvers converge
    on the same prompts, which limits what any comparison can say.</p>""",
    first=lambda numbers: [solvers.convergence(numbers, "sphere")],
    parts=(
        Part(
            id="solvers",
            title="Classical solvers, step by step",
            intro=f"""<p>The paper compares with four: preconditioned <b>Richardson</b> (divide the residual by the row
            sums of K, add it to w, repeat) and <b>conjugate gradients</b> on the system, <b>gradient descent</b> and
            <b>Nesterov</b>'s method on the regularized loss. All see the same {EVALUATION_SEQUENCES} prompts.</p>""",
            results=lambda numbers: [
                *(solvers.convergence(numbers, setting) for setting in DISTRIBUTIONS if setting != "sphere"),
                solvers.conditioning(numbers),
                solvers.precision(numbers),
            ],
        ),
        Part(id="runs", title="The training runs", block="runs"),
        Part(id="protocol", title="The protocol: the paper's hyperparameters and ours", block="protocol"),
        Part(id="made", title="How this page was made", block="made"),
    ),
)

CHAPTERS = (CONSTRUCTION, TRAINED, INSTEAD, PUBLISHED, OTHERS, KNOWN)


def all_results(numbers: Numbers) -> Iterator[Result]:
    """Every result of the page, in its order."""
    groups = [HERO]
    for chapter in CHAPTERS:
        groups += [chapter.first, *(part.results for part in chapter.parts)]
    for results in groups:
        yield from (result for result in results(numbers) if result is not None)
