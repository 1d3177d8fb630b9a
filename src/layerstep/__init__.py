"""layerstep: which solver does a transformer run, and can we write one down?

Names are loaded when first used, so that `layerstep --help` answers without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # what type checkers and documentation tools read; a test holds both lists together
    from layerstep import construction as construction
    from layerstep import errors as errors
    from layerstep import measurement as measurement
    from layerstep import reproduction as reproduction
    from layerstep import solvers as solvers
    from layerstep import tasks as tasks
    from layerstep import training as training
    from layerstep.construction import Certificate as Certificate
    from layerstep.construction import Construction as Construction
    from layerstep.construction import GaussianMixture as GaussianMixture
    from layerstep.construction import Matern as Matern
    from layerstep.construction import Prediction as Prediction
    from layerstep.construction import RationalQuadratic as RationalQuadratic
    from layerstep.construction import TransformerKRR as TransformerKRR
    from layerstep.construction import construct as construct
    from layerstep.errors import FileError as FileError
    from layerstep.errors import InputError as InputError
    from layerstep.errors import LayerstepError as LayerstepError
    from layerstep.measurement import FAMILIES as FAMILIES
    from layerstep.measurement import Comparison as Comparison
    from layerstep.measurement import Family as Family
    from layerstep.measurement import GPTReader as GPTReader
    from layerstep.measurement import Hooked as Hooked
    from layerstep.measurement import Identification as Identification
    from layerstep.measurement import Instrument as Instrument
    from layerstep.measurement import Match as Match
    from layerstep.measurement import Probes as Probes
    from layerstep.measurement import Reader as Reader
    from layerstep.measurement import Rule as Rule
    from layerstep.measurement import Verdict as Verdict
    from layerstep.measurement import compare as compare
    from layerstep.measurement import identify as identify
    from layerstep.measurement import interleaved as interleaved
    from layerstep.measurement import layers_won as layers_won
    from layerstep.measurement import linear_families as linear_families
    from layerstep.measurement import load as load
    from layerstep.measurement import match as match
    from layerstep.measurement import pairs as pairs
    from layerstep.measurement import probe as probe
    from layerstep.reproduction import reproduce as reproduce
    from layerstep.solvers import SOLVERS as SOLVERS
    from layerstep.solvers import Boosting as Boosting
    from layerstep.solvers import CausalBoosting as CausalBoosting
    from layerstep.solvers import CausalGD as CausalGD
    from layerstep.solvers import CausalRichardson as CausalRichardson
    from layerstep.solvers import Chebyshev as Chebyshev
    from layerstep.solvers import ChebyshevInWeights as ChebyshevInWeights
    from layerstep.solvers import ConjugateGradient as ConjugateGradient
    from layerstep.solvers import ConjugateGradientInWeights as ConjugateGradientInWeights
    from layerstep.solvers import DiscreteMMSE as DiscreteMMSE
    from layerstep.solvers import GradientDescent as GradientDescent
    from layerstep.solvers import GradientDescentInWeights as GradientDescentInWeights
    from layerstep.solvers import GradientDescentPlusPlus as GradientDescentPlusPlus
    from layerstep.solvers import HeavyBall as HeavyBall
    from layerstep.solvers import HeavyBallInWeights as HeavyBallInWeights
    from layerstep.solvers import IterativeSolver as IterativeSolver
    from layerstep.solvers import Kaczmarz as Kaczmarz
    from layerstep.solvers import NadarayaWatson as NadarayaWatson
    from layerstep.solvers import NearestNeighbors as NearestNeighbors
    from layerstep.solvers import Nesterov as Nesterov
    from layerstep.solvers import NesterovInWeights as NesterovInWeights
    from layerstep.solvers import Newton as Newton
    from layerstep.solvers import NewtonSchulz as NewtonSchulz
    from layerstep.solvers import OnlineGD as OnlineGD
    from layerstep.solvers import Preconditioned as Preconditioned
    from layerstep.solvers import RecursiveKRR as RecursiveKRR
    from layerstep.solvers import Richardson as Richardson
    from layerstep.solvers import RidgePath as RidgePath
    from layerstep.solvers import Shrinkage as Shrinkage
    from layerstep.solvers import SoftmaxAverage as SoftmaxAverage
    from layerstep.solvers import Solver as Solver
    from layerstep.solvers import exact as exact
    from layerstep.solvers import solve as solve
    from layerstep.solvers import solve_all as solve_all
    from layerstep.tasks import INPUTS as INPUTS
    from layerstep.tasks import KERNELS as KERNELS
    from layerstep.tasks import TASKS as TASKS
    from layerstep.tasks import KernelTask as KernelTask
    from layerstep.tasks import LinearRegression as LinearRegression
    from layerstep.tasks import Path as Path
    from layerstep.tasks import Prompts as Prompts
    from layerstep.tasks import Task as Task
    from layerstep.tasks import Trajectory as Trajectory
    from layerstep.tasks import import_kernel as import_kernel
    from layerstep.tasks import sample as sample
    from layerstep.training import GPT as GPT
    from layerstep.training import PRESETS as PRESETS
    from layerstep.training import SHIPPED as SHIPPED
    from layerstep.training import Diverged as Diverged
    from layerstep.training import Evaluation as Evaluation
    from layerstep.training import Model as Model
    from layerstep.training import Run as Run
    from layerstep.training import evaluate as evaluate
    from layerstep.training import sweep as sweep
    from layerstep.training import train as train
else:
    _NAMES = {
        "tasks": "INPUTS KERNELS KernelTask LinearRegression Path Prompts TASKS Task Trajectory import_kernel sample",
        "solvers": """SOLVERS Boosting CausalBoosting CausalRichardson Chebyshev ConjugateGradient GradientDescent
            HeavyBall IterativeSolver NadarayaWatson NearestNeighbors Nesterov NewtonSchulz RecursiveKRR Richardson
            RidgePath Shrinkage Solver exact solve solve_all CausalGD ChebyshevInWeights ConjugateGradientInWeights
            DiscreteMMSE GradientDescentInWeights GradientDescentPlusPlus HeavyBallInWeights Kaczmarz NesterovInWeights
            Newton OnlineGD Preconditioned SoftmaxAverage""",
        "construction": """Certificate Construction GaussianMixture Matern Prediction RationalQuadratic TransformerKRR
            construct""",
        "training": "Diverged Evaluation GPT Model PRESETS Run SHIPPED evaluate sweep train",
        "measurement": """Comparison FAMILIES Family GPTReader Hooked Identification Instrument Match Probes Reader Rule
            Verdict compare identify interleaved layers_won linear_families load match pairs probe""",
        "reproduction": "reproduce",
        "errors": "FileError InputError LayerstepError",
    }
    _PACKAGE_OF = {name: package for package, names in _NAMES.items() for name in names.split()}
    __all__ = list(_PACKAGE_OF)

    def __getattr__(name):
        import importlib

        if name in _NAMES:
            return importlib.import_module(f"layerstep.{name}")
        if name not in _PACKAGE_OF:
            raise AttributeError(f"layerstep has no {name!r}")
        return getattr(importlib.import_module(f"layerstep.{_PACKAGE_OF[name]}"), name)

    def __dir__():
        return ["__version__", *sorted(_PACKAGE_OF)]
