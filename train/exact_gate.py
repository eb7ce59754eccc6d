"""The exact SV gate as an autograd function: forward by the active set, backward by the implicit function theorem.

memory/svdd/backward.h is the same in C++ and has the formulas. On the margin set S the optimum solves a linear system; its
Cholesky factor serves the last digits of the forward pass and the backward pass. The derivative is that of a fixed partition: a on
R and E is constant. With S empty only rho moves, by its defining keys (an equal share where several have the same h).
"""

import math

import torch

import sv_gate


def rbf(x, y, sigma):
    """exp(−‖x−y‖²/sigma²) by differences, [..., n, d] and [..., t, d] -> [..., n, t]."""
    diff = x[..., :, None, :] - y[..., None, :, :]
    return torch.exp(-(diff * diff).sum(-1) / sigma ** 2)


class ExactGate(torch.autograd.Function):
    """(kern [n, n] float64, symmetric; ridge [] or float; box_mass) -> a [n], rho []. Gradients go to kern and ridge."""

    @staticmethod
    def forward(ctx, kern, ridge, box_mass):
        n, eps = len(kern), float(ridge)
        mass = min(float(box_mass), float(n))
        found = sv_gate.solve_kernel(kern.detach().numpy(), eps, box_mass, start_steps=min(300, n))
        a = torch.from_numpy(found["a"])
        margin = ((a > 0) & (a < 1)).nonzero().flatten()
        ones = torch.ones(len(margin), 1, dtype=kern.dtype)
        factor = torch.linalg.cholesky(2.0 * (kern[margin][:, margin] + eps * torch.eye(len(margin), dtype=kern.dtype)))
        if len(margin):
            upper = (a == 1).to(kern.dtype)
            target = mass * kern.diagonal()[margin] - 2.0 * (kern[margin] @ upper)
            one, w = torch.cholesky_solve(torch.stack([ones[:, 0], target], 1), factor).unbind(1)
            level = (w.sum() - (mass - upper.sum())) / one.sum()
            a[margin] = w - level * one
            rho, at_rho = level / mass, margin
        else:
            h = kern.diagonal() - 2.0 / mass * (kern @ a + eps * a)
            rho = h.sort(descending=True).values[math.ceil(mass) - 1]
            at_rho = ((h == rho) & (a == 1)).nonzero().flatten()
        ctx.save_for_backward(a, factor, margin, at_rho)
        ctx.mass = mass
        return a.clone(), rho.clone()

    @staticmethod
    def backward(ctx, grad_a, grad_rho):
        a, factor, margin, at_rho = ctx.saved_tensors
        dual = torch.zeros_like(a)
        if len(margin):
            rhs = torch.stack([torch.ones_like(grad_a[margin]), grad_a[margin]], 1)
            one, w = torch.cholesky_solve(rhs, factor).unbind(1)
            dual[margin] = w - (w.sum() - grad_rho / ctx.mass) / one.sum() * one
        else:
            dual[at_rho] = grad_rho / (ctx.mass * len(at_rho))
        grad_kern = -2.0 * torch.outer(dual, a) + torch.diag(ctx.mass * dual)
        grad_ridge = -2.0 * (dual @ a) if ctx.needs_input_grad[1] else None
        return grad_kern, grad_ridge, None


def exact_gate(x, sigma, ridge, box_mass):
    """Gate of the keys x [n, d], float64: a [n] in [0, 1] with sum min(box_mass, n), and rho."""
    return ExactGate.apply(rbf(x, x, sigma), ridge, box_mass)


def decision(query, x, a, rho, sigma):
    """f = 2/m Σ a κ(query, x) + rho − 1, positive inside; query [t, d] -> [t]."""
    return 2.0 / min(float(a.sum().detach()), len(a)) * (rbf(query, x, sigma) @ a) + rho - 1.0
