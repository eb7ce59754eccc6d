"""The exact SV gate: one quadratic programme in float64, solved by an active set.

Variables are scaled (shared/numerics.md finding 4): a = alpha * m with m = min(box_mass, n), so the box is [0, 1] for
every n and the only feasible point for n <= box_mass, a = 1, is exact in doubles.

    minimise  aᵀ K̃ a − m diag(K)ᵀ a,   Σ a = m,   0 ≤ a ≤ 1,   K̃ = K + ridge·I
    stationarity g_i = 2(K̃ a)_i − m K_ii + λ:  0 where 0 < a_i < 1 (S),  ≥ 0 where a_i = 0 (R),  ≤ 0 where a_i = 1 (E)
"""

import numpy as np


def kernel(keys, sigma):
    """exp(−‖x−y‖²/sigma²) by differences, so that the diagonal is exactly 1."""
    n = len(keys)
    out = np.empty((n, n))
    for i in range(n):
        diff = keys - keys[i]
        out[i] = np.exp(-np.einsum("nd,nd->n", diff, diff) / sigma ** 2)
    return out


def project(z, mass):
    """The nearest point of {0 ≤ a ≤ 1, Σa = mass}: clip(z − t, 0, 1) with t by bisection."""
    low, high = z.min() - 1.0, z.max()
    for _ in range(60):
        mid = 0.5 * (low + high)
        if np.clip(z - mid, 0.0, 1.0).sum() > mass:
            low = mid
        else:
            high = mid
    return np.clip(z - 0.5 * (low + high), 0.0, 1.0)


def fista_start(k_ridge, mass, steps):
    """A nearly optimal point: it only saves pivots of the active set."""
    n = len(k_ridge)
    vec = np.ones(n)
    for _ in range(20):
        vec = k_ridge @ vec
        vec /= np.linalg.norm(vec)
    step = 1.0 / (2.05 * float(vec @ k_ridge @ vec))
    a = np.full(n, mass / n)
    y, t = a, 1.0
    for _ in range(steps):
        grad = 2.0 * (k_ridge @ y)
        new = project(y - step * grad, mass)
        if float((y - new) @ (new - a)) > 0.0:  # adaptive restart: the momentum points uphill
            t, y = 1.0, a
            continue
        t_new = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        y = new + (t - 1.0) / t_new * (new - a)
        a, t = new, t_new
    return a


def solve_free(k_ridge, diag, mass, free, upper):
    """Minimiser over the free variables with the others at their bounds; returns (a_free, lambda)."""
    s = len(free)
    system = np.zeros((s + 1, s + 1))
    system[:s, :s] = 2.0 * k_ridge[np.ix_(free, free)]
    system[:s, s] = system[s, :s] = 1.0
    rhs = np.empty(s + 1)
    rhs[:s] = mass * diag[free] - 2.0 * k_ridge[np.ix_(free, upper)].sum(axis=1)
    rhs[s] = mass - len(upper)
    sol = np.linalg.solve(system, rhs)
    sol += np.linalg.solve(system, rhs - system @ sol)  # one refinement: residual near rounding
    return sol[:s], sol[s]


def _release_pair(state, grad):
    """S is empty: the multiplier is free. Optimal if max over E ≤ min over R, else exchange the worst pair."""
    lower, upper = np.flatnonzero(state == 0), np.flatnonzero(state == 2)
    if len(lower) == 0 or len(upper) == 0 or grad[upper].max() <= grad[lower].min():
        return False
    state[lower[np.argmin(grad[lower])]] = 1
    state[upper[np.argmax(grad[upper])]] = 1
    return True


def solve(keys, sigma, ridge, box_mass, start_steps=300, tol=1e-12):
    """Exact gate of a prefix; see solve_kernel."""
    return solve_kernel(kernel(keys, sigma), ridge, box_mass, start_steps, tol)


def solve_kernel(kern, ridge, box_mass, start_steps=300, tol=1e-12):
    """The same from the symmetric kernel matrix. Returns a dict: a, margin_a, margin_g (scaled units), kkt (largest violation), sizes.

    margin_a is the distance of S members to the box, margin_g the smallest |g| of R and E members: a solver in lower
    precision finds the same classes only if both are well above its errors.
    """
    n = len(kern)
    mass = min(float(box_mass), float(n))
    if n <= box_mass:
        return {"a": np.ones(n), "margin_a": np.inf, "margin_g": np.inf, "kkt": 0.0, "sizes": [0, n, 0]}
    k_ridge = np.array(kern, dtype=np.float64)
    diag = np.diag(k_ridge).copy()
    k_ridge[np.diag_indices(n)] += ridge
    a = fista_start(k_ridge, mass, start_steps)
    state = np.where(a <= 1e-4, 0, np.where(a >= 1.0 - 1e-4, 2, 1))  # 0 = R, 1 = S, 2 = E
    a = np.where(state == 0, 0.0, np.where(state == 2, 1.0, a))
    for _ in range(50 * n + 1000):
        free, upper = np.flatnonzero(state == 1), np.flatnonzero(state == 2)
        if len(free) == 0:
            a = (state == 2).astype(float)
            if not _release_pair(state, 2.0 * (k_ridge @ a) - mass * diag):
                break
            continue
        target, lam = solve_free(k_ridge, diag, mass, free, upper)
        outside = np.flatnonzero((target < 0.0) | (target > 1.0))
        if len(outside):
            # Walk towards the target and fix the first variable that meets its bound.
            cur = a[free]
            delta = target - cur
            room = np.where(delta[outside] < 0, -cur[outside], 1.0 - cur[outside]) / delta[outside]
            first = outside[np.argmin(room)]
            a[free] = np.clip(cur + max(room.min(), 0.0) * delta, 0.0, 1.0)
            state[free[first]] = 0 if target[first] < 0.0 else 2
            a[free[first]] = 0.0 if target[first] < 0.0 else 1.0
            continue
        a = (state == 2).astype(float)
        a[free] = target
        g = 2.0 * (k_ridge @ a) - mass * diag + lam
        bad = np.where(state == 0, -g, np.where(state == 2, g, 0.0))
        worst = int(np.argmax(bad))
        if bad[worst] <= tol * mass:
            break
        state[worst] = 1
    else:
        raise RuntimeError("active set did not finish")
    return _report(k_ridge, diag, mass, a, state)


def _report(k_ridge, diag, mass, a, state):
    free, lower, upper = (np.flatnonzero(state == c) for c in (1, 0, 2))
    grad = 2.0 * (k_ridge @ a) - mass * diag
    if len(free):
        lam = -float(np.mean(grad[free]))
        margin_a = float(min(a[free].min(), (1.0 - a[free]).min()))
    else:
        high = grad[upper].max()
        low = grad[lower].min() if len(lower) else high
        lam, margin_a = -0.5 * (high + low), np.inf
    g = grad + lam
    bound = np.concatenate([g[lower], -g[upper]])
    viol = max(float(np.abs(g[free]).max()) if len(free) else 0.0, float((-bound).max()) if len(bound) else 0.0,
               abs(float(a.sum()) - mass))
    return {"a": a, "margin_a": margin_a, "margin_g": float(bound.min()) if len(bound) else np.inf,
            "kkt": viol, "sizes": [len(free), len(upper), len(lower)]}
