"""First thing on a GPU: each form against float64, the fused gate step against the plain one, and times by part.

    python3 gpucheck.py --text heldout.xz [--device cuda] [--tokens 2048] [--batch 32] [--compile] [--model DIR]
"""

import argparse
import math
import time

import numpy as np
import torch
import torch.nn.functional as F

import chunked
import data
import fused
import gates as sv
import lethe_io
import network
import tiny_config
import trainer


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def check_forms(config, start, text, device):
    """Loss gradients in float32 against float64, gates of the plain path in both."""
    ids, weight = data.training_batch(np.random.default_rng(3), text, 2, 512)
    ids, weight = torch.from_numpy(ids).long().to(device), torch.from_numpy(weight).to(device)
    cached = {}

    def gate(k, group):
        if "g" not in cached:
            cached["g"] = sv.sv_gates(k, group["sigma"], group["ridge"], group["box_mass"], 60, fused=False)
        return cached["g"].to(k.dtype)

    results = []
    for dtype in (torch.float32, torch.float64):
        w = {n: torch.from_numpy(x.copy()).to(device, dtype).requires_grad_() for n, x in start.items()}
        logits = network.forward(config, w, ids[:, :-1], gate)
        ce = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        (ce * weight.flatten()).mean().backward()
        results.append((logits.detach(), {n: t.grad for n, t in w.items()}))
    print("logits float32 against float64:", relative(results[0][0], results[1][0]))
    worst = sorted(((relative(results[0][1][n], g), n) for n, g in results[1][1].items()), reverse=True)[:6]
    print("worst gradients:", [(round(r, 6), n) for r, n in worst], flush=True)


def check_gates(device):
    torch.manual_seed(0)
    k = torch.randn(2, 1024, 1, 64, device=device)
    k = k / torch.arange(1, 65, device=device) ** 0.7
    plain = sv.sv_gates(k, 1.0, 2.0 ** -11, 256, 100, fused=False)
    truth = sv.sv_gates(k.double(), 1.0, 2.0 ** -11, 256, 4000, fused=False)
    error = float((plain[:, :, -1] - truth[:, :, -1]).abs().sum(-1).mean() / 256)
    print("gates: plain 100 steps against 4000 in float64, Σ|Δa|/m at the last boundary:", error)
    if k.is_cuda:
        fused = sv.sv_gates(k, 1.0, 2.0 ** -11, 256, 100)
        print("gates: fused against plain, largest difference:", float((fused - plain).abs().max()))
        for steps in (60, 200, 1000):
            got = sv.sv_gates(k, 1.0, 2.0 ** -11, 256, steps)
            print("  steps", steps, "Σ|Δa|/m", float((got[:, :, -1] - truth[:, :, -1]).abs().sum(-1).mean() / 256), flush=True)


def palimpsa_inputs(b, t, h, d, device, dtype):
    torch.manual_seed(1)
    q, k, v, u = (torch.randn(b, t, h, d, device=device, dtype=dtype) for _ in range(4))
    decay = -3e-2 * torch.rand(b, t, h, device=device, dtype=dtype)
    return [x.requires_grad_() for x in (chunked.l2(q), chunked.l2(k), v, torch.sigmoid(u), decay)]


def delta_inputs(b, t, h, d, device, dtype):
    torch.manual_seed(2)
    q, k, u, v = (torch.randn(b, t, h, d, device=device, dtype=dtype) for _ in range(4))
    return [x.requires_grad_() for x in (F.elu(q) + 1, chunked.l2(k), chunked.l2(k + 0.5 * u), v)]


def check_fused(device):
    """Finite differences in float64, then float32 against the chunked form in float64. Raises if wrong."""
    cases = (("palimpsa", palimpsa_inputs, lambda *x: fused.palimpsa(*x, 0.125), lambda *x: chunked.palimpsa(*x, 0.125)),
             ("delta_rule", delta_inputs, fused.delta_rule, chunked.delta_rule))
    for name, inputs, kernel, form in cases:
        torch.autograd.gradcheck(kernel, inputs(1, 32, 2, 8, device, torch.float64), eps=1e-6, atol=1e-7)
        outputs = []
        for fn, dtype in ((kernel, torch.float32), (form, torch.float64)):
            x = [y.detach().to(dtype).requires_grad_() for y in inputs(2, 512, 4, 64, device, torch.float64)]
            o = fn(*x)
            (o * torch.cos(torch.arange(o.numel(), device=device)).reshape(o.shape)).sum().backward()
            outputs.append([o.detach()] + [y.grad for y in x])
        errors = [relative(a, b) for a, b in zip(*outputs)]
        print(f"{name}: gradcheck in float64 passed; fused float32 against chunked float64, output and gradients:",
              [f"{e:.1e}" for e in errors], flush=True)
        if not max(errors) < 1e-4:
            raise SystemExit("the fused kernels are wrong")


def timed(label, fn, device, repeat=4):
    fn()
    fn()
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.time()
    for _ in range(repeat):
        fn()
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"  {label}: {(time.time() - begin) / repeat * 1e3:.1f} ms", flush=True)


def time_parts(b, t, device):
    def rand(h, d):
        return torch.randn(b, t, h, d, device=device, requires_grad=True)
    q, k, v, u = (rand(1, 64) for _ in range(4))
    q4, k4, v4 = (rand(4, 64) for _ in range(3))
    decay = -torch.rand(b, t, 1, device=device) * 2e-3
    scale1, scale4 = torch.full((1,), 32.0, device=device), torch.full((4,), 32.0, device=device)
    timed("gates, 60 steps", lambda: sv.sv_gates(k.detach(), 1.0, 2.0 ** -11, 256, 60), device)
    gate = sv.sv_gates(k.detach(), 1.0, 2.0 ** -11, 256, 5)
    timed("sv read", lambda: chunked.gated_softmax(q, k, v, scale1, gate).sum().backward(), device)
    timed("palimpsa, materialised", lambda: chunked.palimpsa(chunked.l2(q), chunked.l2(k), v, torch.sigmoid(u), decay, 0.125).sum().backward(), device)
    if device == "cuda":
        x = palimpsa_inputs(b, t, 4, 64, device, torch.float32)
        timed("palimpsa, fused, 4 heads, forward", lambda: fused.palimpsa(*x, 0.125), device)
        timed("palimpsa, fused, 4 heads", lambda: fused.palimpsa(*x, 0.125).sum().backward(), device)
    timed("vla, chunked", lambda: chunked.vla(F.elu(q) + 1, F.elu(k) + 1, v, chunked.l2(u) / 8, 0.1, False).sum().backward(), device)
    timed("vla, chunked, 4 heads", lambda: chunked.vla(F.elu(q4) + 1, F.elu(k4) + 1, v4, chunked.l2(k4) / 8, 0.1, False).sum().backward(), device)

    def vla_fused(q, k, v, u):
        fused.delta_rule(F.elu(q) + 1, *chunked.vla_writes(F.elu(k) + 1, chunked.l2(u) / 8, 0.1, False), v).sum().backward()
    timed("vla, state fused", lambda: vla_fused(q, k, v, u), device)
    timed("vla, state fused, 4 heads", lambda: vla_fused(q4, k4, v4, k4), device)
    timed("vla writes, 4 heads", lambda: chunked.vla_writes(F.elu(k4) + 1, chunked.l2(k4) / 8, 0.1, False)[1].sum().backward(), device)
    timed("ovq assignment", lambda: chunked.ovq_assign(chunked.l2(k4.detach()), 512), device)
    timed("ovq", lambda: chunked.ovq(q4, k4, v4, scale4, 512).sum().backward(), device)


def time_step(config, start, text, b, t, device, use_compile):
    weights = {n: torch.from_numpy(x.copy()).to(device).requires_grad_() for n, x in start.items()}
    opt = trainer.make_optimizer(weights, 1e-4)
    ids, weight = data.training_batch(np.random.default_rng(3), text, b, t)
    ids, weight = torch.from_numpy(ids).to(device), torch.from_numpy(weight).to(device)
    blocks = trainer.make_blocks(use_compile)
    begin = time.time()

    def step():
        loss = trainer.loss_of(config, weights, ids, weight, 60, None, blocks)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"  first step, compile {use_compile}: {time.time() - begin:.1f} s")
    timed(f"whole step, compile {use_compile}", step, device)
    if device == "cuda":
        print("  peak GB", round(torch.cuda.max_memory_allocated() / 1e9, 1), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--model", help="model directory; default the first shape, untrained")
    args = parser.parse_args()
    text = data.load_text(args.text)
    config = tiny_config.config()
    start = tiny_config.initial_weights(config)
    if args.model:
        config, start = lethe_io.load_model(args.model)
    assert math.isfinite(sum(float(np.abs(w).sum()) for w in start.values()))
    if args.device == "cuda":
        check_fused(args.device)
    check_forms(config, start, text, args.device)
    check_gates(args.device)
    time_parts(args.batch, args.tokens, args.device)
    for flag in ([False, True] if args.compile else [False]):
        time_step(config, start, text, args.batch, args.tokens, args.device, flag)


if __name__ == "__main__":
    main()
