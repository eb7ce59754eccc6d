"""Training forms of the memory kinds: batched, differentiable, chunks of 64, no loop over tokens.

Each function equals its namesake in reference.py (test_chunked.py, float64). Shapes: q, k [B, T, H, K], v [B, T, H, V],
T a multiple of 64. They run under PyTorch 1.13 (CPU) and 2.11 (GPU). What they avoid is what made earlier trials slow:
the recurrences become a few batched matrix products (shared/training.md measured loops over tokens or chunks).
"""

import math

import torch
import torch.nn.functional as F

from lethe_io import GRID

NEG = -1e30  # finite, so that a fully masked row gives no NaN gradient


def l2(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-12)


def conv(z, w, b=None):
    """z [B, T, C]; sum of shifted copies: as fast as a depthwise conv1d here and the same in every version."""
    out = z * w[:, 0]
    for j in range(1, w.shape[1]):
        out = out + F.pad(z, (0, 0, j, 0))[:, :z.shape[1]] * w[:, j]
    return out if b is None else out + b


def chunk(x):
    """[B, T, H, D] -> [B, H, n, 64, D]."""
    b, t, h, d = x.shape
    return x.reshape(b, t // GRID, GRID, h, d).permute(0, 3, 1, 2, 4)


def unchunk(x):
    b, h, n, c, d = x.shape
    return x.permute(0, 2, 3, 1, 4).reshape(b, n * c, h, d)


def window_attention(q, k, v, window, slopes):
    """Window ≤ 64: chunk i looks at chunks i−1 and i."""
    assert window <= GRID
    qc, kc, vc = chunk(q), chunk(k), chunk(v)

    def with_previous(x):
        return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], 3)

    dist = torch.arange(GRID, device=q.device)[:, None] + GRID - torch.arange(2 * GRID, device=q.device)
    bias = -slopes[:, None, None] * dist.to(slopes.dtype)
    bias = bias.masked_fill((dist < 0) | (dist >= window), NEG)[:, None]  # [H, 1, 64, 128]
    n = qc.shape[2]
    absent = (torch.arange(n, device=q.device) == 0)[:, None, None] & (torch.arange(2 * GRID, device=q.device) < GRID)
    bias = bias.masked_fill(absent, NEG)  # [H, n, 64, 128]
    logits = qc @ with_previous(kc).transpose(-1, -2) * (1.0 / math.sqrt(q.shape[-1])) + bias
    return unchunk(torch.softmax(logits, -1).to(v.dtype) @ with_previous(vc))


def gated_softmax(q, k, v, scale, gates, prefix_mass=False):
    """sv: dense causal softmax times gates [B, H, n, T] (row j: weights of the prefix for chunk j).

    A gate enters as log a; log 0 becomes NEG. scale [H] = beta·sqrt(K). Gradients reach the gates if they ask for them.
    prefix_mass: the gated weights are scaled up to the sum that they have without gates (papers.md 1.5), so reserve keys count too.
    """
    q, k = l2(q), l2(k)
    b, t, h, _ = q.shape
    logits = torch.einsum("bthd,bshd->bhts", q * scale[:, None], k)
    pos = torch.arange(t, device=q.device)
    in_chunk = (pos[:, None] // GRID == pos // GRID) & (pos[:, None] >= pos)
    past = pos[:, None] // GRID > pos // GRID
    log_gate = torch.where(gates > 0, torch.log(gates.clamp(min=1e-30)), torch.full_like(gates, NEG))
    log_gate = log_gate.repeat_interleave(GRID, dim=2)
    if prefix_mass:
        whole, gated = ((logits + extra).masked_fill(~past, NEG).logsumexp(-1, keepdim=True) for extra in (0.0, log_gate))
        log_gate = log_gate + (whole - gated)
    zero = torch.zeros((), device=q.device, dtype=logits.dtype)
    bias = torch.where(past, log_gate, torch.where(in_chunk, zero, zero + NEG))
    return torch.einsum("bhts,bshd->bthd", torch.softmax(logits + bias, -1), v)


def causal_softmax(q, k, v, scale):
    """sv with every gate 1 (the limit box_mass ≥ T), through the fused kernel; GPU only."""
    q, k = l2(q), l2(k)
    q, k, v = ((x.transpose(1, 2)) for x in (q * scale[:, None], k, v))
    with torch.autocast("cuda", enabled=False):
        o = F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), is_causal=True, scale=1.0)
    return o.transpose(1, 2).float()


def palimpsa(q, k, value, b, log_decay, scale):
    """value, b [B, T, H, V]; log_decay [B, T, H]. Materialises M and Ī for every token: B·T·H·V·K numbers each.

    All decay factors are exp of non-positive differences, so nothing overflows however strong the forgetting is.
    """
    qc, kc, vc, bc = chunk(q), chunk(k), chunk(value), chunk(b)
    dims = qc.shape[:4] + (vc.shape[-1] * kc.shape[-1],)
    write_m = (vc[..., :, None] * kc[..., None, :]).reshape(dims)
    write_i = (bc[..., :, None] * (kc * kc)[..., None, :]).reshape(dims)
    cum = chunk(log_decay[..., None])[..., 0].cumsum(-1)  # [B, H, n, 64]
    tri = torch.ones(GRID, GRID, device=q.device, dtype=torch.bool).tril()
    inner = torch.exp((cum[..., :, None] - cum[..., None, :]).masked_fill(~tri, NEG))
    n = qc.shape[2]
    total = cum[..., -1].cumsum(-1)  # log decay from rank 0 to the end of chunk j
    before = total - cum[..., -1]
    tri_n = torch.ones(n, n, device=q.device, dtype=torch.bool).tril(-1)
    outer = torch.exp((before[..., :, None] - total[..., None, :]).masked_fill(~tri_n, NEG))  # [B, H, n, n]
    states = []
    for write in (write_m, write_i):
        inside = inner @ write
        carried = outer @ inside[..., -1, :]
        states.append(inside + torch.exp(cum)[..., None] * carried[..., None, :])
    mu = (states[0] / (states[1] + 1.0)).reshape(dims[:4] + (vc.shape[-1], kc.shape[-1]))
    return scale * unchunk((mu @ qc[..., None])[..., 0])


def vla_writes(k, u, lambda0, rls):
    """k already elu + 1, u already scaled, [B, T, H, K] -> unit keys k̂ and write directions α̂, both [B, T, H, K].

    A at a chunk's start is the inverse of λ0 I + Σ u uᵀ. Inside, with G = I + U A Uᵀ = L Lᵀ and W = L⁻¹ U A,
    A_t = A − Σ_{s≤t} w_s w_sᵀ, because the leading blocks of G have the leading blocks of L as factors.
    """
    k_hat = l2(k)
    uc, kc = chunk(k_hat if rls else u), chunk(k_hat)
    eye = torch.eye(k.shape[-1], device=k.device, dtype=k.dtype)
    gram = (uc.transpose(-1, -2) @ uc).cumsum(2)
    prec = lambda0 * eye + F.pad(gram, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    inv = torch.cholesky_inverse(torch.linalg.cholesky(prec)) if not k.is_cuda else torch.linalg.inv_ex(prec)[0]
    ua = uc @ inv
    eye_c = torch.eye(GRID, device=k.device, dtype=k.dtype)
    low = torch.linalg.cholesky_ex(eye_c + ua @ uc.transpose(-1, -2))[0]
    w = torch.linalg.solve_triangular(low, ua, upper=False)
    alpha = kc @ inv - torch.tril(kc @ w.transpose(-1, -2)) @ w
    return k_hat, unchunk(alpha if rls else l2(alpha))


def delta_rule(q, k, alpha, v):
    """S_t = S_{t−1} + (v_t − S_{t−1} k_t) α_tᵀ, reads S_t q_t: E = (I + strict_tril(K αᵀ))⁻¹ (V − K S_0ᵀ) in each chunk."""
    qc, kc, ac, vc = chunk(q), chunk(k), chunk(alpha), chunk(v)
    eye_c = torch.eye(GRID, device=q.device, dtype=q.dtype)
    mix = eye_c + torch.tril(kc @ ac.transpose(-1, -2), -1)
    both = torch.linalg.solve_triangular(mix, torch.cat([vc, kc], -1), upper=False)
    tv, tk = both[..., :vc.shape[-1]], both[..., vc.shape[-1]:]
    step = torch.eye(k.shape[-1], device=q.device, dtype=q.dtype) - tk.transpose(-1, -2) @ ac  # S ← S·step + gain
    gain = tv.transpose(-1, -2) @ ac
    state = torch.zeros_like(gain[:, :, 0])
    starts = []
    for j in range(kc.shape[2]):
        starts.append(state)
        state = state @ step[:, :, j] + gain[:, :, j]
    start = torch.stack(starts, 2)
    err = tv - tk @ start.transpose(-1, -2)
    reads = qc @ start.transpose(-1, -2) + torch.tril(qc @ ac.transpose(-1, -2)) @ err
    return unchunk(reads)


def vla(q, k, v, u, lambda0, rls):
    """State reads S_t q_t without nudge. q, k already elu + 1, u already scaled; v [B, T, H, V]."""
    return delta_rule(q, *vla_writes(k, u, lambda0, rls), v)


def slots_at(slots, tokens):
    return slots * tokens // (slots + tokens)


@torch.no_grad()
def ovq_assign(k, slots):
    """Slot of every token, [B, H, T] int64. The only sequential part: which slot, not the slot's content."""
    b, t, h, kd = k.shape
    kc = chunk(k)
    n_max = max(slots_at(slots, t), 1)
    sums = torch.zeros(b, h, n_max, kd, device=k.device, dtype=k.dtype)
    count = torch.zeros(b, h, n_max, 1, device=k.device, dtype=k.dtype)
    assigned = []
    old = 0
    for j in range(kc.shape[2]):
        kj = kc[:, :, j]
        new = max(old, slots_at(slots, (j + 1) * GRID)) - old
        if j == 0:
            sim = (kj @ kj[:, :, :1].transpose(-1, -2))[..., 0]
            sim[..., 0] = -2.0  # below every cosine: token 0 always opens slot 0
            best_slot = None
        else:
            means = sums[:, :, :old] / count[:, :, :old]
            sim, best_slot = (kj @ means.transpose(-1, -2)).max(-1)
        seeds = sim.topk(new, dim=-1, largest=False).indices.sort(-1).values if new else None
        slot = best_slot
        if j == 0:
            seed_keys = kj.gather(2, seeds[..., None].expand(-1, -1, -1, kd))
            slot = (kj @ seed_keys.transpose(-1, -2)).argmax(-1)
        if new:
            numbers = torch.arange(old, old + new, device=k.device).expand(b, h, new)
            slot = slot.scatter(2, seeds, numbers)
        assigned.append(slot)
        sums.scatter_add_(2, slot[..., None].expand(-1, -1, -1, kd), kj)
        count.scatter_add_(2, slot[..., None], torch.ones_like(kj[..., :1]))
        old += new
    return torch.cat(assigned, 2)


def ovq(q, k, v, scale, slots):
    """Given the assignments, the dictionary at every chunk boundary is a cumulative sum: no loop in the backward pass."""
    q, k = l2(q), l2(k)
    b, t, h, kd = k.shape
    n = t // GRID
    slot = ovq_assign(k.detach(), slots)
    n_max = max(slots_at(slots, t), 1)
    one = torch.ones(b, t, h, 1, device=k.device, dtype=k.dtype)
    rows = chunk(torch.cat([k, v, one], -1)).reshape(b, h, t, -1)
    where = slot + n_max * (torch.arange(t, device=k.device) // GRID)
    sums = torch.zeros(b, h, n * n_max, rows.shape[-1], device=k.device, dtype=k.dtype)
    sums = sums.scatter_add(2, where[..., None].expand(-1, -1, -1, rows.shape[-1]), rows)
    sums = sums.reshape(b, h, n, n_max, -1).cumsum(2)
    sums = F.pad(sums, (0, 0, 0, 0, 1, 0))[:, :, :-1]  # what precedes chunk j
    count = sums[..., -1].detach()
    means = sums[..., :-1] / count.clamp(min=1)[..., None]
    log_c = torch.where(count > 0, torch.log(count.clamp(min=1)), torch.full_like(count, NEG))
    qc, kc, vc = chunk(q * scale[:, None]), chunk(k), chunk(v)
    tri = torch.ones(GRID, GRID, device=q.device, dtype=torch.bool).tril()
    far = qc @ means[..., :kd].transpose(-1, -2) + log_c[..., None, :]
    near = (qc @ kc.transpose(-1, -2)).masked_fill(~tri, NEG)
    p = torch.softmax(torch.cat([far, near], -1), -1)
    return unchunk(p[..., :n_max] @ means[..., kd:] + p[..., n_max:] @ vc)
