"""Times the kernels of the training step on a CUDA device, tile by tile: what the constants of its kernels rest on.

PYTHONPATH=src python3 benchmarks/training_kernels.py
"""

from __future__ import annotations

import json as json_module

import torch

from layerstep.files import provenance
from layerstep.training import GPT, PRESETS
from layerstep.training.stack import Layout


def time_us(launches, repeat: int = 5) -> float:
    """Microseconds of one launch: all launches in one graph, replayed; the median of `repeat`."""
    for launch in launches:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    times = []
    for _ in range(repeat):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return 1000 * sorted(times)[repeat // 2] / len(launches)


def by_time(settings, measure) -> list[tuple[float, object]]:
    """(microseconds, setting), fastest first."""
    results = []
    for setting in settings:
        try:
            results.append((measure(setting), setting))
        except Exception as error:  # a tile that does not fit on chip is a result too
            results.append((float("inf"), (setting, type(error).__name__)))
    return sorted(results, key=lambda pair: pair[0])


def main(S: int = 4, json: bool = False) -> None:
    if not torch.cuda.is_available():
        words = "no CUDA device here, nothing to time"
        line = json_module.dumps({"benchmark": "training_kernels", "skipped": words})
        print(line if json else f"training kernels: {words}.")
        return
    kernels: dict[str, list[tuple[float, object]]] = {}

    def report(name: str, settings, measure) -> None:
        kernels[name] = by_time(settings, measure)
        if not json:
            shown = "  ".join(f"{us:.1f} {setting}" for us, setting in kernels[name][:6])
            print(f"{name:<28} {shown}", flush=True)

    from layerstep.training.fused import adamw, attention, matmul, rowwise
    from layerstep.training.fused.network import FusedNetwork

    run = PRESETS["paper"]
    L = run.model.layers
    gpt = GPT(run.model)
    layout = Layout(gpt)
    device = torch.device("cuda")
    weights = torch.zeros(S, layout.P, device=device)
    gradient = torch.zeros_like(weights)
    for s in range(S):
        layout.load(weights, s, gpt.initialise(s))
    net = FusedNetwork(run, layout, weights, gradient)
    # Real data everywhere: zeros run faster than what training sees.
    for tensor in (net.stream, net.h1, net.h2, net.z, net.qkv, net.slope, net.act, net.d, net.dh, net.dz,
                   net.d_mid, net.d_out, net.dqkv, net.dpre):  # fmt: skip
        tensor.normal_()
    p, w, layers = net.p, net.w, range(L)
    if not json:
        print(f"microseconds per launch, {S} models of the default shape, 12 layers in turn; fastest first")

    def product(kind, launch):
        def measure(tile):
            matmul.TILES[kind] = tile
            return time_us([lambda i=i: launch(i) for i in layers])

        return measure

    tiles = [
        (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (128, 64, 64, 4, 3),
    ]  # fmt: skip

    def b(i, name):
        return f"blocks.{i}.{name}"

    products = {
        "qkv 256→768": ("", lambda i: matmul.linear(
            net.h1[i], p[b(i, "attention.qkv.weight")], w[b(i, "attention.qkv.bias")], net.qkv[i])),
        "out 256→256 residual": ("residual", lambda i: matmul.linear(
            net.z[i], p[b(i, "attention.out.weight")], w[b(i, "attention.out.bias")], net.stream[2 * i + 1],
            "residual", extra=net.stream[2 * i])),
        "up 256→1024 gelu": ("gelu", lambda i: matmul.linear(
            net.h2[i], p[b(i, "up.weight")], w[b(i, "up.bias")], net.act[i], "gelu", slope=net.slope[i])),
        "down 1024→256 residual": ("residual", lambda i: matmul.linear(
            net.act[i], p[b(i, "down.weight")], w[b(i, "down.bias")], net.stream[2 * i + 2], "residual",
            extra=net.stream[2 * i + 1])),
        "back 256→1024 times slope": ("times", lambda i: matmul.linear(
            net.d_out[i], p[b(i, "down.weight")], None, net.dpre[i], "times", back=True, extra=net.slope[i])),
        "back 1024→256": ("", lambda i: matmul.linear(
            net.dpre[i], p[b(i, "up.weight")], None, net.dh, back=True)),
        "back 768→256": ("", lambda i: matmul.linear(
            net.dqkv[i], p[b(i, "attention.qkv.weight")], None, net.dh, back=True)),
    }  # fmt: skip
    for name, (kind, launch) in products.items():
        kept = matmul.TILES[kind]
        report(name, tiles, product(kind, launch))
        matmul.TILES[kind] = kept
    dense = p[b(0, "up.weight")]
    report("up by cuBLAS, no epilogue", ["bmm"], lambda _: time_us([
        lambda i=i: torch.bmm(net.h2[i], dense.mT, out=net.dpre[i]) for i in layers]))  # fmt: skip

    def gradients(dy, x, name):
        both = net.g_layers[f"{name}.weight"], net.g_layers[f"{name}.bias"]

        def measure(tile):
            matmul.GRADIENT_TILE = tile
            return time_us([lambda: matmul.weight_gradient(dy, x, *both)]) / L

        return measure

    kept = matmul.GRADIENT_TILE
    gradient_tiles = [(128, 128, 64, 8, 3), (128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (256, 128, 64, 8, 3)]
    report("gradient of up, a layer", gradient_tiles, gradients(net.dpre, net.h2, "up"))
    report("gradient of qkv, a layer", gradient_tiles, gradients(net.dqkv, net.h1, "attention.qkv"))
    matmul.GRADIENT_TILE = kept

    def forward(warps):
        attention.FORWARD_WARPS = warps
        return time_us([
            lambda i=i: attention.attention_forward(net.qkv[i], net.z[i], net.log[i], net.T, 8, "softmax")
            for i in layers])  # fmt: skip

    def backward(warps):
        attention.BACKWARD_WARPS = warps
        return time_us([
            lambda i=i: attention.attention_backward(
                net.qkv[i], net.z[i], net.log[i], net.dz, net.dqkv[i], net.T, 8, "softmax")
            for i in layers])  # fmt: skip

    report("attention forward", (1, 2, 4), forward)
    report("attention backward", (1, 2, 4), backward)

    def norm(setting):
        rowwise.BLOCK, rowwise.WARPS = setting
        return time_us([
            lambda i=i: rowwise.norm(net.stream[i], w[b(i, "norm1.weight")], w[b(i, "norm1.bias")], net.h1[i])
            for i in layers])  # fmt: skip

    def norm_back(setting):
        rowwise.CHUNK, rowwise.BACK_BLOCK, rowwise.BACK_WARPS = setting
        sums = torch.zeros(2, S, rowwise.chunks(net.d.shape[1]), net.d.shape[2], device=device)
        return time_us([
            lambda i=i: rowwise.norm_backward(
                net.stream[i], net.dh, w[b(i, "norm1.weight")], net.d, net.d_mid[i], *sums)
            for i in layers])  # fmt: skip

    report("norm", [(4, 2), (8, 1), (8, 2), (8, 4)], norm)
    report("norm backward", [(c, *t) for c in (16, 32) for t in ((2, 1), (4, 1), (4, 2), (8, 2), (8, 4))],
           norm_back)  # fmt: skip
    numbers = torch.full((S, 9), 0.5, device=device)
    mean, square = torch.rand_like(weights), torch.rand_like(weights)

    def step(setting):
        adamw.UPDATE, adamw.SQUARES = setting
        return time_us([lambda: net.update(weights, gradient, mean, square, numbers)])

    report("clip and AdamW, all models", [(1024, 16384), (2048, 16384)], step)
    if json:
        # JSON knows no infinity: a setting that does not run has no time.
        timed = {
            name: [{"us": us if us < float("inf") else None, "setting": setting} for us, setting in results]
            for name, results in kernels.items()
        }
        where = provenance(str(device))
        print(json_module.dumps({"benchmark": "training_kernels", **where, "models": S, "kernels": timed}))


if __name__ == "__main__":
    main()
