"""Pieces of a computation are kept one by one; a call that died is called again and does the rest."""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from layerstep.engines import compute_pieces
from layerstep.errors import InputError, LayerstepError

ARGUMENTS = {name: {"number": number} for number, name in enumerate(("a", "b", "c"))}


def square(argument):
    if file := argument.get("file"):
        with open(file, "a") as calls:
            calls.write("x")
    return argument["number"] ** 2


def picky(argument):
    if argument["number"] == 1:
        raise InputError("number = 1: must be another.")
    return square(argument)


def deadly(argument):
    if argument["number"] == 1:
        os._exit(9)
    return square(argument)


def test_what_is_kept_is_not_computed_again_and_other_code_or_arguments_are(tmp_path):
    calls = tmp_path / "calls"
    arguments = {name: argument | {"file": str(calls)} for name, argument in ARGUMENTS.items()}
    with ThreadPoolExecutor(2) as workers:
        for code, made in (("1", 3), ("1", 3), ("2", 6)):
            found = compute_pieces(square, arguments, tmp_path / "kept", code=code, on=workers)
            assert list(found.items()) == [("a", 0), ("b", 1), ("c", 4)]
            assert len(calls.read_text()) == made
        (tmp_path / "kept" / "b.json").write_text("{cut sho")
        assert compute_pieces(square, arguments, tmp_path / "kept", code="2", on=workers) == found
        assert len(calls.read_text()) == 7


@pytest.mark.parametrize(("function", "words"), [(picky, "number = 1: must be another"), (deadly, "the worker died")])
def test_one_that_fails_costs_no_other_and_is_named(function, words, tmp_path):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as workers:
        with pytest.raises(LayerstepError, match=rf"1 of 3 failed, b: {words}"):
            compute_pieces(function, ARGUMENTS, tmp_path, code="1", on=workers)
    assert [json.loads((tmp_path / f"{name}.json").read_text())["value"] for name in "ac"] == [0, 4]
    assert not (tmp_path / "b.json").exists()


def test_without_an_engine_processes_are_started_here(tmp_path):
    said = []
    found = compute_pieces(square, {"a": {"number": 3}}, tmp_path, code="1", jobs=2, say=said.append)
    assert found == {"a": 9}
    assert said[0].startswith("a: done after")
