"""A plain causal transformer of lethe-tiny's size, trained by trainer.py on the same sequences: what the memories are measured by.

Rotary attention over everything before, SwiGLU, RMS norms; layer type "attention" exists for training only, docs/model-format.md
does not know it. `python3 trainer.py --baseline …` trains it, `evaluate.py --checkpoint …` evaluates it like any other.
"""

import math

import torch
import torch.nn.functional as F


def config(layers=6, heads=4, mlp_width=512):
    attention = {"type": "attention", "heads": heads, "head_dim": 64, "mlp_width": mlp_width}
    return {"format": "lethe-model/1", "name": "baseline", "tokenizer": "bytes", "vocab_size": 256, "end_of_text": 0,
            "width": 256, "max_tokens": 65536, "norm_eps": 1e-6, "layers": [dict(attention) for _ in range(layers)]}


def rotate(x):
    """x [B, T, H, D]: pairs (i, i + D/2) turned by rank · 10000^(−2i/D)."""
    half = x.shape[-1] // 2
    rate = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000.0) / half))
    angle = torch.arange(x.shape[1], device=x.device)[:, None] * rate
    cos, sin = torch.cos(angle)[:, None].to(x.dtype if x.dtype == torch.float64 else torch.float32), torch.sin(angle)[:, None]
    a, b = x[..., :half].to(cos.dtype), x[..., half:].to(cos.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


def causal_attention(q, k, v):
    """[B, H, T, D]; the fused kernel where PyTorch has one."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(logits.masked_fill(future, float("-inf")), -1) @ v


def attention_block(x, norm1, wq, wk, wv, wo, heads: int, eps: float):
    h = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * norm1
    q, k, v = (F.linear(h, w).unflatten(-1, (heads, -1)) for w in (wq, wk, wv))
    q, k, v = (z.transpose(1, 2) for z in (rotate(q), rotate(k), v))
    return x + F.linear(causal_attention(q, k, v).transpose(1, 2).flatten(2), wo)
