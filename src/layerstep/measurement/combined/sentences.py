"""Three plain sentences: the answer, what it rests on, and what it does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerstep.measurement.calibration.record import causal_false_claims, trained_positives
from layerstep.measurement.combined.decision import CONFLICT, NOT_TESTED, PREDICTS, READABLE, RUNS
from layerstep.measurement.identification.decision import AMBIGUOUS, IDENTIFIED, NOTHING
from layerstep.measurement.identification.report import headline, later_rate, one_per_class, order_words, span
from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.interventions.operator import Operator

if TYPE_CHECKING:
    from layerstep.measurement.combined.result import Identification


def three_sentences(found: Identification) -> tuple[str, str, str]:
    return _answer(found), _evidence(found), _limits(found)


def _answer(found: Identification) -> str:
    answer = found.answer
    if answer.status == RUNS:
        claim = max(found.interventions.claims, key=lambda each: len(each.steps_left))  # type: ignore[union-attr]
        left = ", ".join(map(str, claim.steps_left))
        others = getattr(claim, "alternatives", ()) if found.own is None or found.own.solver is None else ()
        either = f" (or {', '.join(others)}: undecided)" if others else ""
        return (
            f"{found.label} runs {answer.solver}{either}: what is written into {claim.first} to {claim.last} comes out "
            f"as this solver says ({claim.form} form; {left} steps left)."
        )
    if answer.status == PREDICTS:
        own = found.own
        assert own is not None
        order = order_words(own)
        words = f"layer by layer {found.label} predicts as {answer.solver} does, read by {answer.carried_by}"
        return f"{words[0].upper()}{words[1:]}" + (
            f", but {order}." if order else f" (layers {span(own.overall.usable)})."
        )
    if answer.status == CONFLICT:
        causal = found.interventions.solver if found.interventions else None
        predicts = found.own.solver if found.own else None
        return (
            f"No solver can be named for {found.label}: written into, its layers answer as {causal} does, but what "
            f"they predict follows {predicts}."
        )
    if answer.status == READABLE:
        return (
            f"No solver can be named for {found.label}: {answer.readable} can be read off its layers, but that it is "
            "used is not shown."
        )
    if answer.status == NOT_TESTED:
        return f"{found.label} could not be tested" + _because(found) + "."
    return f"No solver can be named for {found.label}" + _measured(found) + "."


def _because(found: Identification) -> str:
    return f", because {'; '.join(found.untested.values())}" if found.untested else ""


def _measured(found: Identification) -> str:
    """The measured operator of the middle site, in a clause."""
    if not found.operator:
        return ""
    sites = list(found.operator)
    site = sites[len(sites) // 2]
    return f"; measured instead, at {site} one layer on: {_operator(found.operator[site])}"


def _operator(operator: Operator) -> str:
    norm = "" if operator.normalisation == "none" else f" over its {operator.normalisation} sum"
    return (
        f"a kernel of bandwidth {operator.bandwidth:.2f}{norm}, which explains {operator.explained:.0%} of the response"
    )


def _evidence(found: Identification) -> str:
    """What each part says."""
    parts = []
    if found.behaviour is not None:
        parts.append(f"read by {found.read_by}, its layers follow {_says(found.behaviour)}")
    if found.readings is not None and "lens" in found.readings.verdicts:
        parts.append(f"read by its own head, {_says(found.readings.verdicts['lens'])}")
    if found.interventions is not None:
        tested = [layer for layer in found.interventions.layers if layer.match is not None]
        if tested and not found.interventions.claims:
            least = min(each.unexplained for layer in tested if layer.match for each in layer.match.ranking)
            parts.append(
                f"written into, none of {len(tested)} sites answers as a solver that was tried (at best {least:.0%} of "
                "the response is left)"
            )
        elif found.interventions.claims:
            parts.append("written into, " + "; ".join(str(claim) for claim in found.interventions.claims))
    parts += [f"{part} cannot be tested, because {reason}" for part, reason in found.untested.items()]
    words = "; ".join(parts) or "nothing was asked"
    if found.readings is not None and found.readings.widest[3] >= 0.02:
        *_, site, gap = found.readings.widest
        words += f" (the readings differ most at {site}, by {gap:.0%})"
    return f"{words[0].upper()}{words[1:]}."


def _says(verdict: Verdict) -> str:
    if verdict.status == NOTHING:
        return f"nothing that could be identified ({verdict.overall.reason or 'no layer is usable'})"
    order = order_words(verdict)
    if verdict.status == IDENTIFIED:
        return f"{verdict.solver}" + (f", but {order}" if order else "")
    if verdict.status == AMBIGUOUS:
        return f"one of several classes that fit alike ({headline(verdict.overall).partition(': ')[2]})"
    classes = len(one_per_class(verdict.overall))
    return f"none of {classes} classes" + headline(verdict.overall).removeprefix("none")


def _limits(found: Identification) -> str:
    """What the answer does not say, with the rates it rests on."""
    answer = found.answer
    if answer.status == RUNS:
        false = causal_false_claims()
        rate = f": of {false[1]} that run something else it claimed {false[0]}" if false else ""
        return f"How often such a claim is wrong is known from networks made for the purpose only{rate}."
    if answer.status == PREDICTS:
        own = found.own
        assert own is not None
        test = own.calibration["test"]["overall"]["false"]
        rest = "" if found.interventions is None else " and interventions did not confirm it"
        return (
            f"That is a statement about predictions{rest}: the same rule claimed {test['claims']} of {test['of']} "
            f"negative controls of the calibration suite{later_rate(own)}."
        )
    words = []
    if found.behaviour is not None and found.behaviour.status != NOTHING:
        words.append("probes fitted on y read the best prediction in a state, not the state of an iteration")
    if found.interventions is not None:
        words.append(silence())
    elif "interventions" in found.parts:
        words.append("only writing into the states could show a solver that no reading shows")
    return (
        "That is not evidence against a solver inside: " + ", and ".join(words) + "." if words else "Nothing follows."
    )


def silence() -> str:
    """How much the silence of the interventions says."""
    trained = trained_positives()
    if trained is None:
        return "how often the interventions recognise a network trained to run a solver has not been measured"
    recognised, of = trained
    return f"the interventions recognised {recognised} of {of} networks that were trained to run one"
