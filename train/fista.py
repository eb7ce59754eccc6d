"""The batched training path to the SV gate (papers.md 1.4, numerics.md 16): accelerated projected gradients without gradient,
then one linear system on the margin set they found, through which autograd goes. memory/svdd/fista.h is the same in C++.

gates.py stays what lethe-tiny is trained with (a fixed number of steps for all boundaries at once, on the GPU, detached).
"""

import dataclasses

import torch

from chunked import l2
from lethe_io import GRID

STEPS_PER_CHECK = 10


@dataclasses.dataclass
class Options:
    """Defaults: the serving problem. paper(m): SV-Attention's own settings; the classes at 1e-3 of alpha = a/m."""
    max_steps: int = 20000
    tolerance: float = 1e-4  # of the KKT residual, in a-units; 0: all steps
    margin_tolerance: float = 1e-6  # S is what the projection left inside the box; a key at its bound up to rounding is no S
    iteration_ridge: float = 2.0 ** -11
    system_ridge: float = 2.0 ** -11
    power_steps: int = 8
    restart: bool = True
    upper_bound: bool = True  # of the largest eigenvalue
    clip: bool = True


def paper(mass):
    return Options(max_steps=80, tolerance=0.0, margin_tolerance=1e-3 * mass, iteration_ridge=0.0, system_ridge=5e-4,
                   restart=False, upper_bound=False, clip=False)


def serving(ridge, **more):
    return Options(iteration_ridge=ridge, system_ridge=ridge, **more)


def project(z, mass, ok):
    """The nearest point of {0 ≤ a ≤ 1, Σa = mass} in every row, 0 where not ok: clip(z − c, 0, 1).

    Σ clip(z − c, 0, 1) falls in c from Σ ok to 0, linear between the breakpoints z − 1 and z; the segment that passes mass has c.
    """
    inside = z.masked_fill(~ok, 0.0)
    points, order = torch.cat([inside - 1.0, inside], -1).sort(-1)
    bends = torch.cat([-ok.to(z.dtype), ok.to(z.dtype)], -1).gather(-1, order)
    slope = bends.cumsum(-1)
    drops = torch.nn.functional.pad(slope[..., :-1] * (points[..., 1:] - points[..., :-1]), (1, 0))
    height = ok.sum(-1, keepdim=True) + drops.cumsum(-1)
    at = ((height >= mass).sum(-1, keepdim=True) - 1).clamp(min=0)
    here, fall = height.gather(-1, at), slope.gather(-1, at)
    shift = points.gather(-1, at) + torch.where(fall < 0, (mass - here) / fall.clamp(max=-1.0), torch.zeros_like(fall))
    return (z - shift).clamp(0.0, 1.0) * ok


def _times(kern, x):
    return (kern @ x[..., None])[..., 0]


def largest_eigenvalue(kern, ok, options):
    """[B, 1]; an upper bound, max (Kv)_i/v_i for the power iteration's positive v, or its estimate from below."""
    v = ok.to(kern.dtype)
    for _ in range(options.power_steps):
        new = _times(kern, v) * ok
        bound = torch.where(ok, new / v, torch.zeros_like(v)).max(-1, keepdim=True).values
        norm = new.norm(dim=-1, keepdim=True)
        v = new / norm
    return bound if options.upper_bound else norm


def residual_of(kern, a, mass, ok, ridge):
    """(max over a > 0 of grad − min over a < 1)/2: 0 at the optimum and only there, [B, 1]."""
    grad = 2.0 * (_times(kern, a) + ridge * a) - mass * kern.diagonal(dim1=-2, dim2=-1)
    give = grad.masked_fill(~(ok & (a > 0)), float("-inf")).max(-1, keepdim=True).values
    take = grad.masked_fill(~(ok & (a < 1)), float("inf")).min(-1, keepdim=True).values
    return (0.5 * (give - take)).clamp(min=0.0)


@torch.no_grad()
def iterate(kern, ok, mass, options, start=None):
    """kern [B, n, n], ok [B, n], mass [B, 1] -> a [B, n], residual [B, 1], steps [B, 1].

    A row stops by itself, so it does not depend on what shares the batch.
    """
    a = mass / ok.sum(-1, keepdim=True) * ok if start is None else start
    diag, y = kern.diagonal(dim1=-2, dim2=-1), a
    step = 1.0 / (2.0 * (largest_eigenvalue(kern, ok, options) + options.iteration_ridge) + 1e-6)
    t = torch.ones_like(mass)
    residual = residual_of(kern, a, mass, ok, options.iteration_ridge)
    steps = torch.zeros_like(mass, dtype=torch.long)
    done = residual <= options.tolerance
    for i in range(1, options.max_steps + 1):
        if bool(done.all()):
            break
        grad = 2.0 * (_times(kern, y) + options.iteration_ridge * y) - mass * diag
        new = project(y - step * grad, mass, ok)
        uphill = ((y - new) * (new - a)).sum(-1, keepdim=True) > 0
        t_new = 0.5 * (1.0 + torch.sqrt(1.0 + 4.0 * t * t))
        momentum = (t - 1.0) / t_new
        if options.restart:
            t_new, momentum = torch.where(uphill, torch.ones_like(t), t_new), torch.where(uphill, torch.zeros_like(t), momentum)
        y = torch.where(done, y, new + momentum * (new - a))
        a, t, steps = torch.where(done, a, new), t_new, torch.where(done, steps, torch.full_like(steps, i))
        if i % STEPS_PER_CHECK == 0 or i == options.max_steps:
            residual = torch.where(done, residual, residual_of(kern, a, mass, ok, options.iteration_ridge))
            done = done | (residual <= options.tolerance)
    return a, residual, steps


def solve_system(kern, a, ok, mass, options):
    """The linear system on the classes of an iterate, differentiable in kern: a [B, n], rho [B].

    Rows of the batch are padded with identity. A row with S empty keeps a; its rho is the ⌈m⌉-th largest h.
    """
    inside = ok & (a > options.margin_tolerance) & (a < 1.0 - options.margin_tolerance)
    upper = (ok & (a >= 1.0 - options.margin_tolerance)).to(kern.dtype)
    size = max(int(inside.sum(-1).max()), 1)
    idx = inside.to(torch.int8).argsort(-1, descending=True)[:, :size]
    real = inside.gather(1, idx)
    rows = kern.gather(1, idx[:, :, None].expand(-1, -1, kern.shape[-1]))
    eye = torch.eye(size, dtype=kern.dtype, device=kern.device)
    k_ss = rows.gather(2, idx[:, None].expand(-1, size, -1)) + options.system_ridge * eye
    factor = torch.linalg.cholesky(torch.where(real[:, :, None] & real[:, None], 2.0 * k_ss, eye))
    diag = kern.diagonal(dim1=-2, dim2=-1)
    target = (mass * diag.gather(1, idx) - 2.0 * _times(rows, upper)) * real
    one, w = torch.cholesky_solve(torch.stack([real.to(kern.dtype), target], -1), factor).unbind(-1)
    empty = ~inside.any(-1, keepdim=True)
    level = (w.sum(-1, keepdim=True) - (mass - upper.sum(-1, keepdim=True))) / (one.sum(-1, keepdim=True) + empty)
    on_margin = (w - level * one) * real
    solved = upper.scatter_add(1, idx, on_margin.clamp(0.0, 1.0) if options.clip else on_margin)
    h = (diag - 2.0 / mass * (_times(kern, upper) + options.iteration_ridge * upper)).masked_fill(~ok, float("-inf"))
    ranked = h.sort(-1, descending=True).values.gather(1, mass.ceil().long() - 1)
    return solved, torch.where(empty, ranked, level / mass)[:, 0]


def gates(x, sigma, ridge, box_mass, boundaries, options=None, warm_start=True):
    """Keys x [B, T, d] -> list over ascending boundaries s of (a [B, s], rho [B], residual [B], steps [B]).

    options: of a mass (paper) or not; default serving(ridge). Gradients reach x (and sigma) through the linear systems.
    """
    square = (x * x).sum(-1)
    distance = square[..., :, None] + square[..., None, :] - 2.0 * (x @ x.transpose(-1, -2))
    eye = torch.eye(x.shape[-2], dtype=torch.bool, device=x.device)
    whole = torch.exp(-distance.clamp(min=0.0).masked_fill(eye, 0.0) / sigma ** 2)
    out, last, last_mass = [], None, None
    for s in boundaries:
        kern, m = whole[:, :s, :s], min(float(box_mass), float(s))
        mass = torch.full((len(x), 1), m, dtype=x.dtype, device=x.device)
        ok = torch.ones(len(x), s, dtype=torch.bool, device=x.device)
        start = None
        if warm_start and last is not None and last_mass == m:
            start = torch.nn.functional.pad(last, (0, s - last.shape[1]))
        use = options or serving(ridge)
        last, residual, steps = iterate(kern, ok, mass, use, start)
        a, rho = solve_system(kern, last, ok, mass, use)
        out.append((a, rho, residual[:, 0], steps[:, 0]))
        last_mass = m
    return out


def layer_gates(k, group):
    """For network.forward(…, gate_steps=layer_gates): gates [B, H, n, T] through which gradients flow, unlike gates.py's."""
    b, t, h, kd = k.shape
    x = l2(k if k.dtype == torch.float64 else k.float()).permute(0, 2, 1, 3).reshape(b * h, t, kd)
    rows = [torch.zeros(b * h, t, dtype=x.dtype, device=k.device)]
    for a, _, _, _ in gates(x, group["sigma"], group["ridge"], group["box_mass"], range(GRID, t, GRID)):
        rows.append(torch.nn.functional.pad(a, (0, t - a.shape[1])))
    return torch.stack(rows, 1).reshape(b, h, t // GRID, t)
