"""Writes tests/testdata/svdd/training.json: gates, their gradients, the FISTA path and reads, in float64.

    python3 train/make_sv_vectors.py

tests/memory/svdd_training_vectors_test.cc checks the C++ side against it, test_sv_training.py that this side still gives the same.
"""

import json
import os

import numpy as np
import torch

import exact_gate
import fista
import sv_gate

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "testdata", "svdd", "training.json")
RIDGE = 2.0 ** -11


def key_sets():
    """name -> (keys, sigma, box_mass); none has a margin below 1e-4, so both sides find the same classes."""
    rng = np.random.default_rng(20)
    copies = rng.standard_normal((9, 3))
    return {
        "gaussian": (rng.standard_normal((16, 3)), 1.3, 5.0),
        "half_mass": (rng.standard_normal((20, 4)), 1.7, 6.5),
        "copies": (np.concatenate([copies, copies[:4], copies[2:3]]), 1.2, 5.0),
        "no_margin": (np.array([[3.0, 0], [-3, 0], [0, 3.5], [0.1, 0.2], [-0.2, 0.1]]), 6.0, 3.0),
        "fewer_than_mass": (rng.standard_normal((5, 2)), 1.1, 8.0),
    }


def gradients(keys, sigma, box_mass, seed):
    x = torch.tensor(keys, requires_grad=True)
    width = torch.tensor(sigma, dtype=torch.float64, requires_grad=True)
    ridge = torch.tensor(RIDGE, dtype=torch.float64, requires_grad=True)
    a, rho = exact_gate.exact_gate(x, width, ridge, box_mass)
    rng = np.random.default_rng(seed)
    adjoint_a, adjoint_rho = rng.standard_normal(len(keys)), float(rng.standard_normal())
    (a @ torch.from_numpy(adjoint_a) + adjoint_rho * rho).backward()
    return {"adjoint_a": adjoint_a, "adjoint_rho": adjoint_rho, "a": a.detach().numpy(), "rho": float(rho),
            "keys_gradient": x.grad.numpy(), "sigma_gradient": float(width.grad), "ridge_gradient": float(ridge.grad)}


def fista_case(keys, sigma, box_mass):
    x, n = torch.tensor(keys)[None], len(keys)
    kern, ok = exact_gate.rbf(x, x, sigma), torch.ones(1, n, dtype=torch.bool)
    mass = torch.full((1, 1), min(box_mass, float(n)), dtype=torch.float64)
    out = {}
    for name, options in (("paper", fista.paper(float(mass))), ("serving", fista.serving(RIDGE, tolerance=1e-6))):
        iterate, _, _ = fista.iterate(kern, ok, mass, options)
        a, rho = fista.solve_system(kern, iterate, ok, mass, options)
        out[name] = {"iterate": iterate[0].numpy(), "a": a[0].numpy(), "rho": float(rho[0])}
    return out


def read_case():
    """One query over 24 gated and 5 local tokens; inputs are exact in float32, for the C++ reference takes floats."""
    rng = np.random.default_rng(21)
    q, keys, values = (rng.standard_normal(s).astype(np.float32) for s in ((4,), (29, 4), (29, 3)))
    gate = np.where(rng.uniform(size=24) < 0.4, 0.0, rng.uniform(size=24))
    beta = 0.75
    out = {"q": q, "keys": keys, "values": values, "gate": gate, "beta": beta}
    for name, keep in (("plain", False), ("prefix_mass", True)):
        logits = torch.from_numpy(keys.astype(np.float64)) @ torch.from_numpy(q.astype(np.float64)) * (beta * 2.0)
        w = torch.exp(logits - logits.max())
        gated = w[:24] * torch.from_numpy(gate)
        if keep:
            gated = gated * (w[:24].sum() / gated.sum())
        w = torch.cat([gated, w[24:]])
        out[name] = (w @ torch.from_numpy(values.astype(np.float64)) / w.sum()).numpy()
    return out


def vectors():
    cases = []
    for i, (name, (keys, sigma, box_mass)) in enumerate(key_sets().items()):
        found = sv_gate.solve(keys, sigma, RIDGE, box_mass)
        if min(found["margin_a"], found["margin_g"]) < 1e-4:
            raise SystemExit(f"{name}: a margin of {found['margin_a']}, {found['margin_g']} is too small to compare")
        cases.append({"name": name, "sigma": sigma, "box_mass": box_mass, "ridge": RIDGE, "key_dim": keys.shape[1], "keys": keys,
                      **gradients(keys, sigma, box_mass, i), "fista": fista_case(keys, sigma, box_mass)})
    return {"origin": "train/make_sv_vectors.py; float64, train/exact_gate.py and train/fista.py", "cases": cases, "read": read_case()}


def plain(value):
    if isinstance(value, np.ndarray):
        return [float(x) for x in value.ravel()]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def main():
    torch.set_num_threads(1)
    os.makedirs(os.path.dirname(PATH), exist_ok=True)
    found = plain(vectors())
    cases = ",\n".join(json.dumps(c) for c in found["cases"])
    with open(PATH, "w") as f:
        f.write('{"origin": %s,\n"cases": [\n%s\n],\n"read": %s}\n' % (json.dumps(found["origin"]), cases, json.dumps(found["read"])))


if __name__ == "__main__":
    main()
