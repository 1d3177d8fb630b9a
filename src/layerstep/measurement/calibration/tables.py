"""The calibration record as the tables of the documentation."""

from __future__ import annotations

from typing import Any


def show(record: dict[str, Any]) -> str:
    """The record as the tables of the documentation."""
    lines = ["| | calibration seed | test seeds |", "|---|---|---|"]
    names = {
        "inside": "planted solvers: right class",
        "removed": "own class left out: claims",
        "outside": "negative controls: claims",
    }
    pair = [record[part]["overall"] for part in ("calibration", "test")]
    for key, words in (names | {"false": "**all false claims**"}).items():
        cells = [f"{part[key].get('right', part[key].get('claims'))} of {part[key]['of']}" for part in pair]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} |")
    lines.append(f"| planted solvers: wrong class | {pair[0]['inside']['wrong']} | {pair[1]['inside']['wrong']} |")
    for scope, words in (("window", "four layers"), ("layer", "one layer")):
        parts = [record[part][scope] for part in ("calibration", "test")]
        right = [f"{part['inside']['right']} of {part['inside']['of']}" for part in parts]
        wrong = [
            f"{part['inside']['wrong'] + part['outside']['claims']} of {part['inside']['of'] + part['outside']['of']}"
            for part in parts
        ]
        lines += [
            f"| {words}: right class | {right[0]} | {right[1]} |",
            f"| {words}: false | {wrong[0]} | {wrong[1]} |",
        ]
    lines += _more(record)
    lines += ["", "| V limit (test seeds) | right | false claims |", "|---|---|---|"]
    for limit, counts in record["limits"].items():
        inside, false = counts["inside"], counts["false"]
        mark = "**" if float(limit) == record["rule"]["v_limit"] else ""
        cells = f"{inside['right']} of {inside['of']} | {false['claims']} of {false['of']}"
        lines.append(f"| {mark}{limit}{mark} | {cells} |")
    quantiles = record["V_quantiles"]
    shown = {key: ", ".join(f"{name} {value:.4f}" for name, value in part.items()) for key, part in quantiles.items()}
    lines += ["", f"V of planted solvers: {shown['inside']}."]
    lines += [f"V of negative controls, or with the own class left out: {shown['outside']}."]
    lines += ["", "| planted model | results (test seeds) |", "|---|---|"]
    for name, counts in record["confusion"].items():
        answers = ", ".join(
            f"{answer} {number}" for answer, number in sorted(counts.items(), key=lambda item: -item[1])
        )
        lines.append(f"| {name} | {answers} |")
    return "\n".join(lines)


def _more(record: dict[str, Any]) -> list[str]:
    """What else was measured on the test seeds: fewer sequences, row sums, the veto."""
    lines = []
    if record["fewer"]:
        lines = ["", "| sequences (one test seed) | right | wrong class | false claims |", "|---|---|---|---|"]
    for few, counts in record["fewer"].items():
        inside, false = counts["inside"], counts["false"]
        right = f"{inside['right']} of {inside['of']}"
        lines.append(f"| {few} | {right} | {inside['wrong']} | {false['claims']} of {false['of']} |")
    if "second_answers" in record:
        lines += ["", "| second answer, class rightly claimed | right | wrong | not named |", "|---|---|---|---|"]
        for answer, words in (("schedule", "how the steps grow"), ("variant", "which variant of gradient descent")):
            counts = record["second_answers"][answer]
            lines.append(
                f"| {words} | {counts['right']} of {counts['of']} | {counts['wrong']} | {counts['undecided']} |"
            )
    if not record["fewer"]:
        return lines
    lines += ["", "| row sums or none, class rightly claimed | right | wrong | undecided |", "|---|---|---|---|"]
    for scope, words in (("overall", "all layers"), ("layer", "one layer")):
        counts = record["row_sums"][scope]
        right = f"{counts['right']} of {counts['of']}"
        lines.append(f"| {words} | {right} | {counts['wrong']} | {counts['undecided']} |")
    lines += [
        "",
        "| veto on layers not linear in the labels | right claims lost | false claims withdrawn |",
        "|---|---|---|",
    ]
    for noise, words in (("none", "no noise"), ("bent", "noise that is a nonlinear function of the labels")):
        cells = [f"{counts['withdrawn']} of {counts['of']}" for counts in record["vetoes"][noise].values()]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} |")
    return lines
