#!/usr/bin/env python3
"""Times the peers of Lethe's kernels on the first CUDA device, one JSON object a line; started by `lethe bench kernels`.

Peers, each where it can be imported (PYTHONPATH): PyTorch, flash-linear-attention (`fla`), the Palimpsa authors' kernels
(`palimpsa`). Every object names the case of ours that it stands beside ("kernel" and "shape" as there). Forward with final
state, H = 16 heads, random inputs in the peer's usual format, medians after warm-up; autotuning happens in the warm-up.
"""
import argparse
import json
import math
import statistics
import sys

HEADS = 16
PREFILL_SHAPES = [(1, 32768, 64), (8, 4096, 64), (1, 32768, 128), (8, 4096, 128)]
DECODE_SHAPES = [(256, 64), (1024, 64), (256, 128), (1024, 128)]


def measure(run, runs):
    """Seconds of a run, each value the mean of as many in a row as fill a millisecond, by device events."""
    import torch

    def timed(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end) / repeats

    once = [timed(1) for _ in range(3)][-1]
    repeats = max(1, min(100, math.ceil(1e-3 / once)))
    return [timed(repeats) for _ in range(runs)]


def captured(run):
    """The same work as one graph launch, so that kernels are not timed with their Python; as it is where that fails."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay
    except RuntimeError as error:
        print(f"timed with its Python: {str(error).splitlines()[:1]}", file=sys.stderr)
        torch.cuda.synchronize()
        return run


def inputs(batch, length, dim, dtype):
    import torch
    from torch.nn.functional import normalize

    q, k, v = (torch.randn(batch, length, HEADS, dim, device="cuda", dtype=torch.float32) for _ in range(3))
    return normalize(q, dim=-1).to(dtype), normalize(k, dim=-1).to(dtype), v.to(dtype)


def gates(batch, length, dtype=None):
    """log_decay <= 0 and beta in (0, 1)."""
    import torch

    log_decay = -0.2 * torch.rand(batch, length, HEADS, device="cuda", dtype=torch.float32)
    beta = torch.rand(batch, length, HEADS, device="cuda", dtype=dtype or torch.float32)
    return log_decay, beta


def palimpsa_functions():
    import fla.utils

    if not hasattr(fla.utils, "use_cuda_graph"):
        fla.utils.use_cuda_graph = False  # a switch of their autotuner that later versions of fla lack
    try:
        from palimpsa.ops.palimpsa import chunk_palimpsa, fused_recurrent_palimpsa
    except ImportError:
        from palimpsa import chunk_palimpsa, fused_recurrent_palimpsa  # the ops folder itself is on the path
    return chunk_palimpsa, fused_recurrent_palimpsa


def palimpsa_arguments(batch, length, dim, dtype):
    import torch

    q, k, v = inputs(batch, length, dim, dtype)
    b = torch.rand(batch, length, HEADS, dim, device="cuda", dtype=dtype)
    gt = torch.rand(batch, length, HEADS, device="cuda", dtype=dtype)
    g = torch.full((HEADS,), 0.1, device="cuda", dtype=dtype)
    prior = torch.ones(HEADS, device="cuda", dtype=dtype)
    return q, k, v, b, gt, g, prior


def palimpsa_prefill(batch, length, dim):
    import torch

    chunk_palimpsa, _ = palimpsa_functions()
    arguments = palimpsa_arguments(batch, length, dim, torch.float32)
    return lambda: chunk_palimpsa(*arguments, chunk_size=32, output_final_state=True)


def palimpsa_decode(batch, dim):
    import torch

    _, fused_recurrent_palimpsa = palimpsa_functions()
    arguments = palimpsa_arguments(batch, 1, dim, torch.float32)
    mu = torch.randn(batch, HEADS, dim, dim, device="cuda")
    precision = 1.0 + torch.rand_like(mu)
    return lambda: fused_recurrent_palimpsa(
        *arguments, initial_mu_state=mu, initial_I_state=precision, output_final_state=True)


def delta_rule(batch, length, dim):
    import torch
    from fla.ops.delta_rule import chunk_delta_rule

    q, k, v = inputs(batch, length, dim, torch.bfloat16)
    beta = gates(batch, length, torch.bfloat16)[1]
    return lambda: chunk_delta_rule(q, k, v, beta, output_final_state=True)


def gated_delta_rule(batch, length, dim):
    import torch
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v = inputs(batch, length, dim, torch.bfloat16)
    log_decay, beta = gates(batch, length)
    return lambda: chunk_gated_delta_rule(q, k, v, log_decay, beta.bfloat16(), output_final_state=True)


def mesa_net(batch, length, dim):
    import torch
    from fla.ops.mesa_net import chunk_mesa_net

    q, k, v = inputs(batch, length, dim, torch.bfloat16)
    log_decay, beta = gates(batch, length)
    lamb = torch.full((HEADS, dim), 0.25, device="cuda")
    return lambda: chunk_mesa_net(q, k, v, log_decay, beta.bfloat16(), lamb, output_final_state=True)


def simple_gla(batch, length, dim):
    import torch
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = inputs(batch, length, dim, torch.bfloat16)
    log_decay = gates(batch, length)[0]
    return lambda: chunk_simple_gla(q, k, v, log_decay, output_final_state=True)


def simple_gla_decode(batch, dim):
    import torch
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    q, k, v = inputs(batch, 1, dim, torch.bfloat16)
    log_decay = gates(batch, 1)[0]
    state = torch.randn(batch, HEADS, dim, dim, device="cuda")
    return lambda: fused_recurrent_simple_gla(q, k, v, log_decay, initial_state=state, output_final_state=True)


def gated_delta_rule_decode(batch, dim):
    import torch
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    q, k, v = inputs(batch, 1, dim, torch.bfloat16)
    log_decay, beta = gates(batch, 1)
    state = torch.randn(batch, HEADS, dim, dim, device="cuda")
    return lambda: fused_recurrent_gated_delta_rule(
        q, k, v, g=log_decay, beta=beta, initial_state=state, output_final_state=True)


def causal_attention(batch, length, dim):
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (x.transpose(1, 2).contiguous() for x in inputs(batch, length, dim, torch.bfloat16))
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=True)


def fista(problems, num_keys, sigma_squared, unit_norm):
    """The batched training path to the gates: 80 accelerated steps, each projected by 30 bisections, no system after it."""
    import torch

    x = torch.randn(problems, num_keys, 64, device="cuda")
    if unit_norm:
        x = torch.nn.functional.normalize(x, dim=-1)
    mass = 0.1 * num_keys

    def project(z):
        low, high = z.min(-1, keepdim=True).values - 1.0, z.max(-1, keepdim=True).values
        for _ in range(30):
            middle = 0.5 * (low + high)
            is_low = (z - middle).clamp(0.0, 1.0).sum(-1, keepdim=True) > mass
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        return (z - 0.5 * (low + high)).clamp(0.0, 1.0)

    def run():
        square = (x * x).sum(-1)
        kern = square[:, :, None] + square[:, None, :] - 2.0 * (x @ x.transpose(-1, -2))
        kern = torch.exp(-kern.clamp(min=0.0) / sigma_squared)
        v = torch.ones(problems, num_keys, 1, device="cuda")
        for _ in range(8):
            v = kern @ v
            norm = v.norm(dim=1, keepdim=True)
            v = v / norm
        step = 1.0 / (2.0 * norm[:, :, 0])
        a = torch.full((problems, num_keys), 0.1, device="cuda")
        y, t = a, 1.0
        for _ in range(80):
            new = project(y - step * (2.0 * (kern @ y[:, :, None])[:, :, 0] - mass))
            t_new = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
            y, a, t = new + (t - 1.0) / t_new * (new - a), new, t_new
        return a

    return run


# (problems a batch, as one graph, what to call it); plain PyTorch is what training runs.
FISTA_FORMS = [
    (64, False, "PyTorch FISTA 80 x 30, 64 problems"),
    (64, True, "the same as one graph"),
    (2048, True, "PyTorch FISTA, 2048 problems, one graph"),
]


# (our kernel, peer, number format, what it runs)
PREFILL_PEERS = [
    ("palimpsa prefill", "Palimpsa, authors' Triton, chunk 32", "f32", palimpsa_prefill),
    ("mamba2 prefill", "fla chunk_simple_gla", "bf16", simple_gla),
    ("vla prefill", "fla chunk_delta_rule", "bf16", delta_rule),
    ("vla prefill", "fla chunk_gated_delta_rule", "bf16", gated_delta_rule),
    ("vla prefill", "fla chunk_mesa_net, 30 steps", "bf16", mesa_net),
    ("ovq prefill", "PyTorch causal attention", "bf16", causal_attention),
]
# The number of f32 states of [H][D][D] that a step reads and writes comes last.
DECODE_PEERS = [
    ("palimpsa decode", "Palimpsa, authors' Triton", "f32", palimpsa_decode, 2),
    ("mamba2 decode", "fla fused_recurrent_simple_gla", "bf16, f32 state", simple_gla_decode, 1),
    ("vla decode", "fla fused_recurrent_gated_delta_rule", "bf16, f32 state", gated_delta_rule_decode, 1),
]


def report(kernel, shape, peer, dtype, seconds, tokens, state_bytes):
    median = statistics.median(seconds)
    print(json.dumps({
        "bench": "kernel_peer", "kernel": kernel, "shape": shape, "peer": peer, "dtype": dtype, "runs": len(seconds),
        "median_s": median, "min_s": min(seconds), "max_s": max(seconds), "tokens_per_s": tokens / median,
        "state_bytes_per_s": state_bytes / median}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="take the peers of our cases that hold this text")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device for PyTorch")
    cases = []
    for kernel, peer, dtype, prepare in PREFILL_PEERS:
        for batch, length, dim in PREFILL_SHAPES:
            shape = f"B{batch} T{length} D{dim}"
            cases.append((kernel, shape, peer, dtype, prepare, (batch, length, dim), batch * length, 0))
    for kernel, peer, dtype, prepare, num_states in DECODE_PEERS:
        for batch, dim in DECODE_SHAPES:
            state_bytes = num_states * 2 * 4 * batch * HEADS * dim * dim
            cases.append((kernel, f"B{batch} D{dim}", peer, dtype, prepare, (batch, dim), batch, state_bytes))
    plain = set()
    for kernel, sigma_squared, unit_norm in (("svdd solve, gaussian", 128.0, False), ("svdd solve, unit norm", 4.0, True)):
        for num_keys in (256, 1024):
            for problems, as_graph, name in FISTA_FORMS:
                if not as_graph:
                    plain.add(name)
                cases.append((kernel, f"N{num_keys} D64", name, "f32", fista, (problems, num_keys, sigma_squared, unit_norm),
                              problems, 0))
    for kernel, shape, peer, dtype, prepare, arguments, tokens, state_bytes in cases:
        if options.filter not in f"{kernel} {shape}":
            continue
        try:
            with torch.no_grad():
                run = prepare(*arguments)
                seconds = measure(run if peer in plain else captured(run), options.runs)
        except Exception as error:  # a peer's failure is its own: absent, or not made for this shape
            print(f"{peer}, {shape}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
            continue
        report(kernel, shape, peer, dtype, seconds, tokens, state_bytes)


if __name__ == "__main__":
    main()
