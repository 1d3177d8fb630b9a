"""What probes read off a saved model, kept beside the libraries: the same weights and prompts give the same path."""

from __future__ import annotations

from collections.abc import Callable

import torch

from layerstep.files import digest, source_digest
from layerstep.measurement.identification.cache import Tensors, content_digest, kept
from layerstep.measurement.reading.hooks import GPTReader
from layerstep.measurement.reading.probes import Probes
from layerstep.tasks import Prompts, Trajectory

#: Packages whose code decides what is read.
CODE = ("tasks", "training", "measurement/reading")


def cached_path(probes: Probes) -> Callable[[Prompts], Trajectory]:
    """`probes.path`; of a GPT on the CPU, as it was saved, from the user's cache directory where it was read before."""
    reader = probes.reader
    if not isinstance(reader, GPTReader) or reader.model.read_in.weight.device.type != "cpu":
        return probes.path
    gpt = reader.model
    weights = gpt.state_dict()
    tensors = [weights[name] for name in sorted(weights)]
    shape = [gpt.model.to_dict(), gpt.d, gpt.N, reader.attention, reader.normed]
    about = [content_digest(*tensors, *probes.weights), shape, source_digest(CODE), torch.__version__]

    def path(prompts: Prompts) -> Trajectory:
        def read() -> Tensors:
            return {"values": probes.path(prompts).values}

        found = kept("path", digest([*about, content_digest(prompts.x, prompts.y)]), read)
        return Trajectory(found["values"], list(reader.stages), probes.facts.get("label", "model"))

    return path
