"""Files: what is saved is what is loaded, shared weights once, and the exported model needs torch alone."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open

from construction.cases import system
from layerstep.construction import Construction, construct, standalone
from layerstep.errors import FileError
from layerstep.files import write_tensors

NETWORKS = {
    "compact": {"scheme": "compact", "B_y": 1.0, "error": 0.05},
    "exact": {"scheme": "exact", "L": 20},
    "exact, one head": {"scheme": "exact", "L": 20, "heads": 1, "eta": 0.5},
    "paper": {"scheme": "paper", "B_x": 1.0, "B_y": 1.0, "L": 5},
}
networks = pytest.mark.parametrize("arguments", NETWORKS.values(), ids=NETWORKS)


@networks
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_saved_is_what_is_loaded(arguments, dtype, tmp_path):
    network = construct(2, 6, 1.0, 0.6, **arguments).to(dtype)
    problem = system(6, 2, 1.0, 0.6, B_y=1.0)
    path = network.save(tmp_path / "network.safetensors")
    again = Construction.load(path)
    assert again.dtype == dtype
    assert again.certificate == network.certificate
    assert torch.equal(again.predict(*problem.tensors()).value, network.predict(*problem.tensors()).value)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["certificate"])["depth"] == network.depth


@networks
def test_numbers_of_numpy_make_the_same_network_and_file(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    theirs = {
        name: np.int64(value) if isinstance(value, int) else np.float32(value) if isinstance(value, float) else value
        for name, value in ({"d": 2, "N": 6, "v": 0.5, "lam": 0.75, "heads": 2, "rho": None} | arguments).items()
    }
    # What float32 holds of 0.05 is another number: compared with the network of what was given.
    given = {name: value.item() if isinstance(value, np.generic) else value for name, value in theirs.items()}
    network, again = construct(**given), Construction.load(construct(**theirs).save(tmp_path / "network.safetensors"))
    assert again.arguments == network.arguments
    assert all(type(value) in (int, float, str, type(None)) for value in construct(**theirs).arguments.values())
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


@networks
def test_a_state_dict_carries_the_weights(arguments):
    network = construct(2, 6, 1.0, 0.6, **arguments)
    other = construct(2, 6, 1.0, 0.6, **arguments)
    for weight in other.parameters():
        weight.zero_()
    other.load_state_dict(network.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))


@networks
def test_the_standalone_model_computes_the_same(arguments, tmp_path):
    network = construct(2, 6, 1.0, 0.6, **arguments)
    model = standalone.load(str(network.save(tmp_path / "network.safetensors")))
    x, y, xq = system(6, 2, 1.0, 0.6, B_y=1.0).tensors()
    for queries in (xq[:1], xq):
        torch.testing.assert_close(
            model.predict(x, y, queries), network.predict(x, y, queries).value, rtol=1e-9, atol=1e-9
        )
    if network.scheme.flexible:
        assert model.predict(x[:0], y[:0], xq).tolist() == [0] * len(xq)
        # A shift that would cost all digits of the logits.
        shifted = model.predict(x + 1e8, y, xq + 1e8)
        torch.testing.assert_close(shifted, network.predict(x + 1e8, y, xq + 1e8).value, rtol=1e-9, atol=1e-9)
    kinds = {type(module).__module__.split(".")[0] for module in model.modules() if not list(module.children())}
    assert kinds == {"torch"}


def test_the_exported_folder_runs_without_this_library(tmp_path):
    network = construct(2, 6, 1.0, 0.6, scheme="compact", B_y=1.0, error=0.05)
    folder = network.export(tmp_path / "model")
    problem = system(6, 2, 1.0, 0.6, B_y=1.0)
    script = f"""
import sys
sys.modules["layerstep"] = None
import torch, model
prompt = {[array.tolist() for array in (problem.x, problem.y, problem.xq)]}
x, y, xq = (torch.tensor(array, dtype=torch.float64) for array in prompt)
print(model.load("weights.safetensors").predict(x, y, xq).tolist())
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(run.stdout), network.predict(*problem.tensors()).value, rtol=1e-11)


def test_files_that_are_not_networks_are_refused(tmp_path):
    (tmp_path / "cut").write_bytes(b"1234")
    with pytest.raises(FileError, match="is not a whole safetensors file"):
        Construction.load(tmp_path / "cut")
    with pytest.raises(FileError, match="missing"):
        Construction.load(tmp_path / "missing")
    write_tensors(tmp_path / "other", {"a": torch.zeros(1)})
    with pytest.raises(FileError, match="is not a constructed network"):
        Construction.load(tmp_path / "other")


ARGUMENTS = {"d": 1, "N": 2, "v": 1.0, "lam": 1.0, "scheme": "compact", "L": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ARGUMENTS, "has other weights"),
        ('{"d": 1, "N":', "is not a constructed network"),
        ([1, 2], "is not a constructed network"),
        (ARGUMENTS | {"lam": -1.0}, r"do not make a network \(lam = -1.0"),
        (ARGUMENTS | {"depth": 3}, r"do not make a network .*depth"),
        (ARGUMENTS | {"N": "two"}, "do not make a network"),
        ({"d": 1}, "do not make a network"),
    ],
)
def test_altered_arguments_are_refused_in_words(arguments, words, tmp_path):
    write_tensors(tmp_path / "wrong", {"a": torch.zeros(1)}, {"arguments": arguments})
    with pytest.raises(FileError, match=words):
        Construction.load(tmp_path / "wrong")
