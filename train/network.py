"""The training forward pass: the layers of docs/model-format.md over the chunked forms, functional in a flat dict of tensors.

The dict has the names of model.safetensors, so nothing is renamed on export. Projections run in the ambient autocast
dtype (bf16 on the GPU); the memory kinds run in the dtype of `residual` (float32, or float64 in tests).
"""

import math

import torch
import torch.nn.functional as F

import baseline
import chunked
import fused
import gates as sv
from lethe_io import GRID


_SLOPES = {}


def slopes_of(values, like):
    """Cached: building a tensor on the GPU from a list waits for the GPU."""
    key = (tuple(values), like.device, like.dtype)
    if key not in _SLOPES:
        _SLOPES[key] = torch.tensor(values, device=like.device, dtype=like.dtype)
    return _SLOPES[key]


def rms_norm(x, gain, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def swiglu(h, w_gate, w_up, w_down):
    return F.linear(F.silu(F.linear(h, w_gate)) * F.linear(h, w_up), w_down)


def mlp_block(x, norm, w_gate, w_up, w_down, eps: float):
    return x + swiglu(rms_norm(x, norm, eps), w_gate, w_up, w_down)


def local_block(x, norm1, conv, wq, wk, wv, wo, slopes, heads: int, window: int, eps: float):
    h = chunked.conv(rms_norm(x, norm1, eps), conv)
    q, k, v = (F.linear(h, w).unflatten(-1, (heads, -1)) for w in (wq, wk, wv))
    o = chunked.window_attention(q, k, v, window, slopes)
    return x + F.linear(o.flatten(2), wo)


def heads_of(z, heads):
    return z.reshape(z.shape[0], z.shape[1], heads, -1)


def palimpsa_group(q, k, v, h, group, w, eps):
    heads, is_d = group["heads"], group["kind"] == "palimpsa_d"
    q, k, x = F.silu(q), F.silu(k), F.silu(v)
    d = F.softplus(F.linear(h, w["w_dt.weight"]) + w["dt_bias"])
    log_decay = -torch.exp(w["A_log"]) * d
    gate = torch.sigmoid(F.linear(h, w["w_bs.weight"])) if is_d else d
    strength = torch.sigmoid(F.linear(F.linear(h, w["w_b1.weight"]), w["w_b2.weight"]))
    b = gate[..., None] * heads_of(strength, heads) * F.softplus(w["b_scale"])[:, None]
    if is_d:
        q, k = chunked.l2(q), chunked.l2(k)
    elif not group["metaplasticity"]:
        b = torch.zeros_like(b)
    scale = 1.0 / math.sqrt(q.shape[-1]) if is_d else 1.0
    o = fused.palimpsa(q, k, gate[..., None] * x, b, log_decay, scale) + w["D"][:, None] * x
    z = F.silu(heads_of(F.linear(h, w["w_z.weight"]), heads))
    if is_d:
        return rms_norm(o, w["out_norm.weight"], eps) * z
    o = o * z
    return rms_norm(o.flatten(2) if group.get("out_norm") == "group" else o, w["out_norm.weight"], eps)


def vla_group(q, k, v, group, w):
    """Without nudge only: the training form has no place for A + 1e-3·I between the rank-one updates."""
    if group["nudge"] or group["read_norm"] != "rms":
        raise NotImplementedError("the chunked VLA form has neither nudge nor the paper's read_norm")
    heads, rls = group["heads"], group["variant"] == "rls"
    u = None
    if not rls:
        u = chunked.l2(heads_of(F.linear(k.flatten(2), w["w_u.weight"]), heads)) / math.sqrt(k.shape[-1])
    k_hat, alpha = chunked.vla_writes(F.elu(k) + 1.0, u, group["lambda0"], rls)
    o = fused.delta_rule(F.elu(q) + 1.0, k_hat, alpha, v)
    return rms_norm(o, w["read_gain"], 1e-12)


def memory_group(q, k, v, h, group, w, eps, gate_steps, stats):
    kind = group["kind"]
    if kind in ("palimpsa_d", "palimpsa_m"):
        return palimpsa_group(q, k, v, h, group, w, eps)
    if kind == "vla":
        return vla_group(q, k, v, group, w)
    if kind == "window":
        slopes = slopes_of(group["alibi_slopes"], q)
        return chunked.window_attention(q, k, v, group["window"], slopes)
    scale = w["beta"] * math.sqrt(k.shape[-1])
    if kind == "ovq":
        return chunked.ovq(q, k, v, scale, group["slots"])
    if callable(gate_steps):  # tests and evaluation pass a function that returns exact gates
        gate = gate_steps(k, group)
    else:
        gate = sv.sv_gates(k.detach(), group["sigma"], group["ridge"], group["box_mass"], gate_steps)
    if stats is not None:
        stats["support"] = (gate[:, :, -1] > 1e-3).sum(-1).float().mean()
    return chunked.gated_softmax(q, k, v, scale, gate, group.get("prefix_mass", False))


def memory_layer(x, layer, weights, p, eps, gate_steps=60, keep=None, stats=None):
    """keep [B, groups] multiplies each group's output (group dropout, ablation); None keeps all."""
    h = rms_norm(x, weights[p + "norm.weight"], eps)
    outs = []
    proj = []
    for g, group in enumerate(layer["groups"]):
        gp = f"{p}groups.{g}."
        w = {n[len(gp):]: t for n, t in weights.items() if n.startswith(gp)}
        proj.append((group, w, [F.linear(h, w[f"w{c}.weight"]) for c in "qkv"]))
    with torch.autocast(x.device.type, enabled=False):
        for g, (group, w, qkv) in enumerate(proj):
            q, k, v = (heads_of(chunked.conv(z.to(x.dtype), w[f"conv_{c}.weight"], w.get(f"conv_{c}.bias")), group["heads"])
                       for c, z in zip("qkv", qkv))
            o = memory_group(q, k, v, h, group, w, eps, gate_steps, stats).flatten(2)
            outs.append(o if keep is None else o * keep[:, g, None, None])
    return x + F.linear(torch.cat(outs, -1), weights[p + "wo.weight"])


def forward(config, weights, ids, gate_steps=60, keep=None, stats=None, blocks=None, hidden=False):
    """ids [B, T] (T a multiple of 64) -> logits [B, T, vocab], or with hidden the normed state before lm_head.

    blocks: {"local": fn, "mlp": fn, "attention": fn} replaces the block functions by compiled ones.
    """
    if ids.shape[1] % GRID:
        raise ValueError(f"T = {ids.shape[1]}, want a multiple of {GRID}")
    eps = config["norm_eps"]
    local_fn, mlp_fn = (blocks or {}).get("local", local_block), (blocks or {}).get("mlp", mlp_block)
    x = F.embedding(ids, weights["embed.weight"])
    for i, layer in enumerate(config["layers"]):
        p = f"layers.{i}."
        if layer["type"] == "memory":
            x = memory_layer(x, layer, weights, p, eps, gate_steps, keep, stats)
            continue
        norm = "norm.weight"
        if layer["type"] == "attention":
            norm = "norm2.weight"
            attention = (blocks or {}).get("attention", baseline.attention_block)
            x = attention(x, *(weights[p + n] for n in ("norm1.weight", "wq.weight", "wk.weight", "wv.weight", "wo.weight")),
                          layer["heads"], eps)
        if layer["type"] == "local":
            norm = "norm2.weight"
            slopes = slopes_of(layer["alibi_slopes"], x)
            names = ("norm1.weight", "conv.weight", "wq.weight", "wk.weight", "wv.weight", "wo.weight")
            x = local_fn(x, *(weights[p + n] for n in names), slopes, layer["heads"], layer["window"], eps)
        x = mlp_fn(x, *(weights[p + n] for n in (norm, "w_gate.weight", "w_up.weight", "w_down.weight")), eps)
    x = rms_norm(x, weights["final_norm.weight"], eps)
    return x if hidden else F.linear(x, weights["lm_head.weight"])
