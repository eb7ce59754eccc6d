"""The plain definition: docs/model-format.md, literally, one token after the other, in any dtype (parity: float64).

No batching, no chunk algebra, no autograd. Everything else in this folder and the C++ engine are checked against it.
forward() also reports how far each discrete choice (OVQ seeds and assignments, SV classes) is from another outcome:
an engine in float32 can only be compared where those gaps are well above its rounding.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

import sv_gate
from lethe_io import GRID

INF = float("inf")


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def l2(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-12)


def softplus(x):
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x)))


def conv(z, w, b=None):
    """Depthwise causal convolution of z [T, C]; w[c][0] is the current token's tap."""
    out = torch.zeros_like(z) if b is None else b.expand_as(z).clone()
    for j in range(w.shape[1]):
        out[j:] += w[:, j] * z[:len(z) - j]
    return out


def swiglu(h, weights, prefix):
    gate = h @ weights[prefix + "w_gate.weight"].T
    return (F.silu(gate) * (h @ weights[prefix + "w_up.weight"].T)) @ weights[prefix + "w_down.weight"].T


def window_attention(q, k, v, heads, window, slopes):
    """Softmax over the last `window` tokens with a linear distance penalty. q, k [T, H·K], v [T, H·V]."""
    length = len(q)
    kd, vd = q.shape[1] // heads, v.shape[1] // heads
    out = torch.empty_like(v)
    for h in range(heads):
        for t in range(length):
            first = max(0, t - window + 1)
            logits = k[first:t + 1, h * kd:(h + 1) * kd] @ q[t, h * kd:(h + 1) * kd] / math.sqrt(kd)
            logits = logits - slopes[h] * torch.arange(t - first, -1, -1, dtype=q.dtype)
            out[t, h * vd:(h + 1) * vd] = torch.softmax(logits, 0) @ v[first:t + 1, h * vd:(h + 1) * vd]
    return out


def local_layer(x, layer, weights, p, eps):
    h = conv(rms_norm(x, weights[p + "norm1.weight"], eps), weights[p + "conv.weight"])
    q, k, v = (h @ weights[f"{p}w{c}.weight"].T for c in "qkv")
    o = window_attention(q, k, v, layer["heads"], layer["window"], layer["alibi_slopes"])
    x = x + o @ weights[p + "wo.weight"].T
    return x + swiglu(rms_norm(x, weights[p + "norm2.weight"], eps), weights, p)


def sv_head(q, k, v, beta, group, gaps):
    """Softmax memory gated by the exact support-vector weights of the prefix before the current grid chunk."""
    q, k = l2(q), l2(k)
    scale = beta * math.sqrt(k.shape[1])
    out = torch.empty_like(v)
    for s in range(0, len(q), GRID):
        gate = torch.ones(0, dtype=q.dtype)
        if s:
            sol = sv_gate.solve(k[:s].double().numpy(), group["sigma"], group["ridge"], group["box_mass"])
            gate = torch.from_numpy(sol["a"]).to(q.dtype)
            gaps.append({"kind": "sv", "rank": s, "margin_a": sol["margin_a"], "margin_g": sol["margin_g"],
                         "kkt": sol["kkt"], "sizes_s_e_r": sol["sizes"]})
        for t in range(s, min(s + GRID, len(q))):
            logits = scale * (k[:t + 1] @ q[t])
            plain = torch.exp(logits - logits.max())
            w = plain * torch.cat([gate, torch.ones(t + 1 - s, dtype=q.dtype)])
            if s and group.get("prefix_mass", False):  # a training option, no part of the model format
                w = torch.cat([w[:s] * (plain[:s].sum() / w[:s].sum()), w[s:]])
            out[t] = (w @ v[:t + 1]) / w.sum()
    return out


def palimpsa_head(q, k, value, b, log_decay, scale):
    """M and Ī are two independent decayed sums; the read divides element by element (papers.md 2.1)."""
    m = torch.zeros(value.shape[1], k.shape[1], dtype=q.dtype)
    imp = torch.zeros_like(m)
    out = torch.empty_like(value)
    for t in range(len(q)):
        decay = torch.exp(log_decay[t])
        m = decay * m + torch.outer(value[t], k[t])
        imp = decay * imp + torch.outer(b[t], k[t] * k[t])
        out[t] = scale * ((m / (imp + 1.0)) @ q[t])
    return out


def palimpsa_group(q, k, v, h, group, weights, p, eps):
    heads, kd, vd = group["heads"], group["key_dim"], group["value_dim"]
    is_d = group["kind"] == "palimpsa_d"
    q, k, x = F.silu(q), F.silu(k), F.silu(v)
    d = softplus(h @ weights[p + "w_dt.weight"].T + weights[p + "dt_bias"])
    log_decay = -torch.exp(weights[p + "A_log"]) * d
    gate = torch.sigmoid(h @ weights[p + "w_bs.weight"].T) if is_d else d
    strength = torch.sigmoid(h @ weights[p + "w_b1.weight"].T @ weights[p + "w_b2.weight"].T)
    z = F.silu(h @ weights[p + "w_z.weight"].T)
    out, norm = torch.empty_like(v), weights[p + "out_norm.weight"]
    for i in range(heads):
        ks, vs = slice(i * kd, (i + 1) * kd), slice(i * vd, (i + 1) * vd)
        qi, ki = (l2(q[:, ks]), l2(k[:, ks])) if is_d else (q[:, ks], k[:, ks])
        g = gate[:, i:i + 1]
        b = g * strength[:, vs] * softplus(weights[p + "b_scale"][i])
        if not is_d and not group["metaplasticity"]:
            b = torch.zeros_like(b)
        o = palimpsa_head(qi, ki, g * x[:, vs], b, log_decay[:, i], 1.0 / math.sqrt(kd) if is_d else 1.0)
        o = o + weights[p + "D"][i] * x[:, vs]
        out[:, vs] = rms_norm(o, norm, eps) * z[:, vs] if is_d else o * z[:, vs]
    if is_d:
        return out
    runs = out.reshape(len(out), -1, len(norm))  # a run is a head, or the whole group (out_norm "group")
    return rms_norm(runs, norm, eps).reshape(out.shape)


def vla_head(q, k, v, u, group, read_gain):
    """A is the running inverse of λ0 I + Σ u uᵀ by Sherman–Morrison; S a delta rule along A k̂ (papers.md 3.1)."""
    rls = group["variant"] == "rls"
    kd = k.shape[1]
    a = torch.eye(kd, dtype=q.dtype) / group["lambda0"]
    state = torch.zeros(v.shape[1], kd, dtype=q.dtype)
    key_sum = torch.zeros(kd, dtype=q.dtype)
    q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
    out = torch.empty_like(v)
    for t in range(len(q)):
        k_hat = l2(k[t])
        direction = k_hat if rls else u[t]
        z = a @ direction
        a = a - torch.outer(z, z) / torch.clamp(1.0 + direction @ z, min=1e-4)
        if group["nudge"] and (t + 1) % 20 == 0:
            a = a + 1e-3 * torch.eye(kd, dtype=q.dtype)
        alpha = a @ k_hat if rls else l2(a @ k_hat)
        state = state + torch.outer(v[t] - state @ k_hat, alpha)
        read = state @ q[t]
        if group["read_norm"] == "rms":
            out[t] = rms_norm(read, read_gain, 1e-12)
        else:
            key_sum = key_sum + k[t]
            out[t] = read / torch.clamp(key_sum @ q[t], min=1e-4)
    return out


def vla_group(q, k, v, group, weights, p):
    heads, kd, vd = group["heads"], group["key_dim"], group["value_dim"]
    u = k if group["variant"] == "rls" else k @ weights[p + "w_u.weight"].T
    gain = weights.get(p + "read_gain")
    out = torch.empty_like(v)
    for i in range(heads):
        ks, vs = slice(i * kd, (i + 1) * kd), slice(i * vd, (i + 1) * vd)
        out[:, vs] = vla_head(q[:, ks], k[:, ks], v[:, vs], l2(u[:, ks]) / math.sqrt(kd), group, gain)
    return out


def slots_after(slots, tokens):
    return slots * tokens // (slots + tokens)


def _first_seeds(k, n_new):
    """Token 0, then the n_new − 1 of the others least similar to it; (similarity, rank) order makes ties definite."""
    sims = (k @ k[0]).tolist()
    order = sorted(range(1, len(k)), key=lambda i: (sims[i], i))
    gap = sims[order[n_new - 1]] - sims[order[n_new - 2]] if 1 < n_new < len(k) else INF
    return [0] + sorted(order[:n_new - 1]), gap


def _later_seeds(best, n_new):
    order = sorted(range(len(best)), key=lambda i: (best[i], i))
    gap = best[order[n_new]] - best[order[n_new - 1]] if 0 < n_new < len(best) else INF
    return sorted(order[:n_new]), gap


def ovq_update(dk, dv, count, k, v, s, slots, gaps):
    """Merge the full chunk that starts at rank s into the dictionary. Lists of vectors; returns nothing, extends them."""
    n_old = len(count)
    n_new = max(n_old, slots_after(slots, s + GRID)) - n_old
    if n_old == 0:
        seeds, seed_gap = _first_seeds(k, n_new)
    else:
        sims = k @ torch.stack(dk[:n_old]).T
        seeds, seed_gap = _later_seeds(sims.max(1).values.tolist(), n_new)
    for i in seeds:
        dk.append(k[i].clone()), dv.append(v[i].clone()), count.append(1)
    if n_old == 0:
        sims = k @ torch.stack(dk).T
    groups, assign_gap = {}, INF
    for i in range(len(k)):
        if i in seeds:
            continue
        row = sims[i].tolist()
        slot = min(range(len(row)), key=lambda n: (-row[n], n))
        if len(row) > 1:
            assign_gap = min(assign_gap, row[slot] - max(r for n, r in enumerate(row) if n != slot))
        groups.setdefault(slot, []).append(i)
    for slot, members in groups.items():
        c = count[slot]
        for store, new in ((dk, k), (dv, v)):
            total = torch.zeros_like(new[0])
            for i in members:
                total = total + new[i]
            store[slot] = (c * store[slot] + total) / (c + len(members))
        count[slot] = c + len(members)
    gaps.append({"kind": "ovq", "rank": s + GRID, "slots": len(count), "seed_gap": seed_gap, "assign_gap": assign_gap})


def ovq_head(q, k, v, beta, group, gaps):
    q, k = l2(q), l2(k)
    scale = beta * math.sqrt(k.shape[1])
    dk, dv, count = [], [], []
    out = torch.empty_like(v)
    for s in range(0, len(q), GRID):
        end = min(s + GRID, len(q))
        for t in range(s, end):
            logits, values = scale * (k[s:t + 1] @ q[t]), v[s:t + 1]
            if count:
                log_c = torch.log(torch.tensor(count, dtype=q.dtype))
                logits = torch.cat([scale * (torch.stack(dk) @ q[t]) + log_c, logits])
                values = torch.cat([torch.stack(dv), values])
            out[t] = torch.softmax(logits, 0) @ values
        if end == s + GRID:
            ovq_update(dk, dv, count, k[s:end], v[s:end], s, group["slots"], gaps)
    return out


def memory_group(h, group, weights, p, eps, gaps):
    bias = {c: weights.get(f"{p}conv_{c}.bias") for c in "qkv"}
    q, k, v = (conv(h @ weights[f"{p}w{c}.weight"].T, weights[f"{p}conv_{c}.weight"], bias[c]) for c in "qkv")
    kind, heads, kd, vd = group["kind"], group["heads"], group["key_dim"], group["value_dim"]
    if kind in ("palimpsa_d", "palimpsa_m"):
        return palimpsa_group(q, k, v, h, group, weights, p, eps)
    if kind == "vla":
        return vla_group(q, k, v, group, weights, p)
    if kind == "window":
        return window_attention(q, k, v, heads, group["window"], group["alibi_slopes"])
    head = sv_head if kind == "sv" else ovq_head
    out = torch.empty_like(v)
    for i in range(heads):
        ks, vs = slice(i * kd, (i + 1) * kd), slice(i * vd, (i + 1) * vd)
        found = []
        out[:, vs] = head(q[:, ks], k[:, ks], v[:, vs], weights[p + "beta"][i], group, found)
        gaps.extend({"at": p + f"head{i}", **g} for g in found)
    return out


def memory_layer(x, layer, weights, p, eps, gaps, off=()):
    """off: indices of groups whose output is replaced by zero (ablation)."""
    h = rms_norm(x, weights[p + "norm.weight"], eps)
    outs = []
    for g, group in enumerate(layer["groups"]):
        if g in off:
            outs.append(torch.zeros(len(x), group["heads"] * group["value_dim"], dtype=x.dtype))
        else:
            outs.append(memory_group(h, group, weights, f"{p}groups.{g}.", eps, gaps))
    return x + torch.cat(outs, 1) @ weights[p + "wo.weight"].T


def to_torch(weights, dtype=torch.float64):
    return {n: torch.from_numpy(np.array(w)).to(dtype) for n, w in weights.items()}


def forward(config, weights, ids, off=()):
    """weights: torch tensors of one dtype; ids: list of vocab ids. Returns logits [T, vocab], layer outputs, gaps."""
    eps, gaps, layer_out = config["norm_eps"], [], []
    x = weights["embed.weight"][torch.as_tensor(ids)]
    for i, layer in enumerate(config["layers"]):
        p = f"layers.{i}."
        if layer["type"] == "local":
            x = local_layer(x, layer, weights, p, eps)
        elif layer["type"] == "memory":
            x = memory_layer(x, layer, weights, p, eps, gaps, off)
        else:
            x = x + swiglu(rms_norm(x, weights[p + "norm.weight"], eps), weights, p)
        layer_out.append(x)
    logits = rms_norm(x, weights["final_norm.weight"], eps) @ weights["lm_head.weight"].T
    return {"logits": logits, "layers": layer_out, "gaps": gaps}
