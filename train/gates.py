"""SV gates for training: accelerated projected gradients for all boundaries of a batch at once, detached.

Same scaled problem as sv_gate.py (numerics.md 4, 16): the serving ridge inside, m = min(box_mass, s) at each boundary s.
The iteration is stopped by count; `residual` says how far from stationary the result is, and the trainer reports it.
"""

import torch

from chunked import l2
from lethe_io import GRID

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU: the plain projection below
    triton = None

if triton is not None:
    @triton.jit
    def _fista_project(grad_ptr, y_ptr, a_ptr, mass_ptr, step_ptr, mom, T, nb, ridge2, BLOCK: tl.constexpr):
        """One program per (batch, boundary): z = y − step·(2K̃y), project, momentum; writes a and y in place."""
        row = tl.program_id(0)
        j = row % nb
        idx = tl.arange(0, BLOCK)
        ok = idx < (j + 1) * 64
        y = tl.load(y_ptr + row * T + idx, mask=ok, other=0.0)
        g = tl.load(grad_ptr + row * T + idx, mask=ok, other=0.0)
        old = tl.load(a_ptr + row * T + idx, mask=ok, other=0.0)
        mass = tl.load(mass_ptr + j)
        step = tl.load(step_ptr + row // nb)
        z = y - step * (2.0 * g + ridge2 * y)
        low = tl.min(tl.where(ok, z, 1e30), 0) - 1.0
        high = tl.max(tl.where(ok, z, -1e30), 0)
        for _ in range(26):
            mid = 0.5 * (low + high)
            total = tl.sum(tl.where(ok, tl.minimum(tl.maximum(z - mid, 0.0), 1.0), 0.0), 0)
            low = tl.where(total > mass, mid, low)
            high = tl.where(total > mass, high, mid)
        new = tl.where(ok, tl.minimum(tl.maximum(z - 0.5 * (low + high), 0.0), 1.0), 0.0)
        # Restart where momentum points uphill (O'Donoghue and Candès): the conditioning of K̃ is 1e5 and more.
        uphill = tl.sum((y - new) * (new - old), 0) > 0.0
        y_new = tl.where(uphill, new, new + mom * (new - old))
        tl.store(a_ptr + row * T + idx, new, mask=idx < T)
        tl.store(y_ptr + row * T + idx, tl.where(ok, y_new, 0.0), mask=idx < T)


def _project(z, mass, ok):
    low = z.masked_fill(~ok, 1e30).min(-1, keepdim=True).values - 1.0
    high = z.masked_fill(~ok, -1e30).max(-1, keepdim=True).values
    for _ in range(40):
        mid = 0.5 * (low + high)
        over = ((z - mid).clamp(0.0, 1.0) * ok).sum(-1, keepdim=True) > mass
        low, high = torch.where(over, mid, low), torch.where(over, high, mid)
    return (z - 0.5 * (low + high)).clamp(0.0, 1.0) * ok


def _momentum(i, period):
    """Nesterov factors, restarted every `period` steps as well."""
    j = i % period
    return j / (j + 3.0)


@torch.no_grad()
def sv_gates(k, sigma, ridge, box_mass, steps, fused=None):
    """k [B, T, H, K] raw keys -> gates [B, H, n, T]: row j is the gate of the prefix of 64·j tokens (zeros beyond it).

    fused: the Triton step; default on a GPU.
    """
    b, t, h, kd = k.shape
    x = l2(k.float() if k.dtype != torch.float64 else k).permute(0, 2, 1, 3).reshape(b * h, t, kd)
    gram = x @ x.transpose(1, 2)
    kern = torch.exp((2.0 * gram - 2.0) / sigma ** 2)
    nb = t // GRID
    out = torch.zeros(b * h, nb, t, device=k.device, dtype=x.dtype)
    if nb == 1:
        return out.reshape(b, h, nb, t)
    solve_rows = nb - 1  # boundaries 64 … 64(nb−1); row 0 of `out` stays empty
    lengths = GRID * torch.arange(1, nb, device=k.device)
    mass = torch.minimum(lengths.to(x.dtype), torch.full((), float(box_mass), device=k.device, dtype=x.dtype))
    ok = torch.arange(t, device=k.device) < lengths[:, None]
    a = (mass / lengths)[:, None] * ok
    a = a.expand(b * h, solve_rows, t).contiguous()
    y = a.clone()
    vec = torch.ones(b * h, t, 1, device=k.device, dtype=x.dtype)
    for _ in range(10):
        vec = kern @ vec
        vec = vec / vec.norm(dim=1, keepdim=True)
    top = (kern @ vec).norm(dim=1).squeeze(-1)
    step = 1.0 / (2.04 * (top + ridge))
    if fused is None:
        fused = triton is not None and x.is_cuda
    for i in range(steps):
        grad = y @ kern
        mom = _momentum(i, 60)
        if fused:
            block = triton.next_power_of_2(t)
            _fista_project[(b * h * solve_rows,)](grad, y, a, mass, step, mom, t, solve_rows, 2.0 * ridge, BLOCK=block, num_warps=4)
        else:
            z = y - step[:, None, None] * (2.0 * grad + 2.0 * ridge * y)
            new = _project(z, mass[:, None], ok)
            uphill = ((y - new) * (new - a)).sum(-1, keepdim=True) > 0
            y = torch.where(uphill, new, new + mom * (new - a))
            a = new
    out[:, 1:] = a
    return out.reshape(b, h, nb, t)
