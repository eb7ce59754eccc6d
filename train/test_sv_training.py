"""The training side of the SV memory: gradients through the gate, the FISTA path, the prefix-mass read; in float64.

Gradients by torch.autograd.gradcheck (eps 1e-6, atol 1e-4), gates against the active set of sv_gate.py, and all of it against the
vectors that the C++ side is checked with.
"""

import json
import unittest

try:
    import numpy as np
except ImportError as missing:
    raise unittest.SkipTest("numpy is not installed") from missing

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import chunked
    import exact_gate
    import fista
    import lethe_io
    import make_sv_vectors
    import make_vectors as mv
    import network
    import reference
    import sv_gate

RIDGE = 2.0 ** -11
COPIES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 4]


def keys_of(n, d, seed, rows=None):
    x = np.random.default_rng(seed).standard_normal((n, d))
    return torch.from_numpy(x if rows is None else x[rows])


def check(test, function, *inputs):
    test.assertTrue(torch.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-4))


def scalar(x):
    return torch.tensor(float(x), dtype=torch.float64, requires_grad=True)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class ExactGateTest(unittest.TestCase):
    def test_equals_the_active_set(self):
        for seed, (n, mass) in enumerate([(16, 5.0), (40, 12.5), (3, 8.0), (1, 1.0)]):
            x = keys_of(n, 3, seed)
            a, rho = exact_gate.exact_gate(x, 1.3, RIDGE, mass)
            want = sv_gate.solve(x.numpy(), 1.3, RIDGE, mass)
            self.assertLess(float((a - torch.from_numpy(want["a"])).abs().max()), 1e-9)
            kern = exact_gate.rbf(x, x, 1.3)
            m = min(mass, float(n))
            h = 1.0 - 2.0 / m * (kern @ a + RIDGE * a)
            self.assertAlmostEqual(float(rho), float(h.sort(descending=True).values[int(np.ceil(m)) - 1]), places=11)

    def test_gradients_of_keys_sigma_and_ridge(self):
        for seed, mass in ((0, 4.0), (1, 5.5)):
            x = keys_of(14, 3, seed).requires_grad_()
            check(self, lambda x, s, e, m=mass: exact_gate.exact_gate(x, s, e, m), x, scalar(1.2), scalar(0.01))

    def test_gradients_of_copies_of_a_key(self):
        x = keys_of(10, 3, 3, COPIES)
        a, _ = exact_gate.exact_gate(x, 1.2, 0.05, 5.0)
        inside = (a > 0) & (a < 1)
        self.assertTrue(bool(inside[1] or inside[4]), "no copied key is in the margin set")
        check(self, lambda x: exact_gate.exact_gate(x, 1.2, 0.05, 5.0), x.requires_grad_())

    def test_gradients_of_kernel_entries_and_the_diagonal(self):
        x = keys_of(9, 2, 4)
        kern = exact_gate.rbf(x, x, 1.0).requires_grad_()
        check(self, lambda k: exact_gate.ExactGate.apply(0.5 * (k + k.T), 0.02, 3.0), kern)

    def test_an_empty_margin_set_moves_rho_alone(self):
        keys, sigma, mass = make_sv_vectors.key_sets()["no_margin"]
        for x, m in ((torch.from_numpy(keys), mass), (keys_of(4, 2, 5), 6.0)):
            a, _ = exact_gate.exact_gate(x, sigma, RIDGE, m)
            self.assertTrue(bool(((a == 0) | (a == 1)).all()))
            y = x.clone().requires_grad_()
            exact_gate.exact_gate(y, sigma, RIDGE, m)[0].sum().backward()
            self.assertEqual(float(y.grad.abs().max()), 0.0)
            check(self, lambda z, m=m: exact_gate.exact_gate(z, sigma, RIDGE, m), y)

    def test_gradients_of_decision_function_and_rbf_readout(self):
        x, values, query = keys_of(12, 3, 6).requires_grad_(), keys_of(12, 2, 7), keys_of(3, 3, 8).requires_grad_()

        def both(x, query):
            a, rho = exact_gate.exact_gate(x, 1.2, 0.01, 4.0)
            w = exact_gate.rbf(query, x, 1.2) * a
            return exact_gate.decision(query, x, a, rho, 1.2), w @ values / w.sum(-1, keepdim=True)

        check(self, both, x, query)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class PrefixMassTest(unittest.TestCase):
    def parts(self, seed, t=2 * 64):
        rng = torch.Generator().manual_seed(seed)
        return [torch.randn(1, t, 1, 3, generator=rng, dtype=torch.float64) for _ in range(3)]

    def test_training_form_equals_the_plain_one(self):
        config = mv.make_config("test", 32, [mv.local(32), mv.memory(mv.sv(16, 40, heads=2, prefix_mass=True))])
        weights = reference.to_torch(mv.perturb(lethe_io.init_weights(config, 0), np.random.default_rng(0)))
        ids = np.random.default_rng(1).integers(0, 256, 256)
        want = reference.forward(config, weights, ids)["logits"]
        group = config["layers"][1]["groups"][0]

        def exact(k, group):
            gate = torch.zeros(1, 2, 4, 256, dtype=k.dtype)
            for h in range(2):
                for c in range(1, 4):
                    x = chunked.l2(k[0, :64 * c, h]).detach()
                    gate[0, h, c, :64 * c] = exact_gate.exact_gate(x, group["sigma"], group["ridge"], group["box_mass"])[0]
            return gate

        got = network.forward(config, weights, torch.as_tensor(ids)[None], exact)[0]
        self.assertLess(float((got - want).abs().max()), 1e-9 * float(want.abs().max()))
        group["prefix_mass"] = False
        other = reference.forward(config, weights, ids)["logits"]
        self.assertGreater(float((other - want).abs().max()), 1e-3 * float(want.abs().max()))

    def test_keeps_the_share_of_the_prefix(self):
        q, k, _ = self.parts(1)
        value = (torch.arange(128) < 64).double()[None, :, None, None]
        gates = torch.zeros(1, 1, 2, 128, dtype=torch.float64)
        gates[0, 0, 1, 3:9] = 0.02
        scale = torch.ones(1, dtype=torch.float64)
        open_gates = torch.ones_like(gates)
        share = chunked.gated_softmax(q, k, value, scale, open_gates)
        kept = chunked.gated_softmax(q, k, value, scale, gates, prefix_mass=True)
        lost = chunked.gated_softmax(q, k, value, scale, gates)
        self.assertLess(float((share - kept)[:, 64:].abs().max()), 1e-12)
        self.assertGreater(float((share - lost)[:, 64:].min()), 0.1)

    def test_gradients_through_gate_and_read(self):
        q, k, v = self.parts(2, 128)
        group = {"sigma": 1.0, "ridge": 0.02, "box_mass": 12.0}
        scale = torch.tensor([2.0], dtype=torch.float64)
        for prefix_mass in (False, True):
            def read(rows, keep=prefix_mass):
                keys = torch.cat([rows, k[:, 3:]], 1)
                return chunked.gated_softmax(q, keys, v, scale, fista.layer_gates(keys, group), keep)[:, 64::16]

            check(self, read, k[:, :3].clone().requires_grad_())


@unittest.skipIf(torch is None, "PyTorch is not installed")
class FistaTest(unittest.TestCase):
    def test_reaches_the_exact_gate(self):
        for seed, (n, d, mass) in enumerate([(48, 3, 7.0), (96, 8, 20.5), (8, 2, 8.0)]):
            x = keys_of(n, d, seed)
            (a, rho, residual, _), = fista.gates(x[None], 1.3, RIDGE, mass, [n], fista.serving(RIDGE, tolerance=1e-6))
            want, want_rho = exact_gate.exact_gate(x, 1.3, RIDGE, mass)
            self.assertLessEqual(float(residual), 1e-6)
            self.assertLess(float((a[0] - want).abs().max()), 1e-8)
            self.assertLess(float((rho[0] - want_rho).abs()), 1e-8)

    def test_projection_is_the_nearest_feasible_point(self):
        z = keys_of(6, 30, 2) * 2.0
        ok = torch.ones_like(z, dtype=torch.bool)
        ok[3:, 20:] = False
        mass = torch.tensor([[1.0], [7.25], [30.0], [1.0], [7.25], [20.0]], dtype=torch.float64)
        a = fista.project(z, mass, ok)
        self.assertLess(float((a.sum(-1, keepdim=True) - mass).abs().max()), 1e-12)
        self.assertEqual(float(a[~ok].abs().max()), 0.0)
        for row, own, inside in zip(a, z, ok):
            shift = own - row
            high = shift[inside & (row > 0)].min()
            low = shift[inside & (row < 1)].max() if bool((inside & (row < 1)).any()) else high
            self.assertLess(float(low - high), 1e-12)

    def test_a_problem_does_not_depend_on_its_batch(self):
        x = torch.stack([keys_of(64, 4, s) * (1 + s) for s in range(3)])
        together = fista.gates(x, 1.2, RIDGE, 9.0, [32, 64])
        for i in range(3):
            for (a, rho, _, steps), (b, r, _, own) in zip(together, fista.gates(x[i:i + 1], 1.2, RIDGE, 9.0, [32, 64])):
                self.assertEqual(int(steps[i]), int(own[0]))
                self.assertLess(float((a[i] - b[0]).abs().max()) + float((rho[i] - r[0]).abs()), 1e-12)

    def test_warm_start_saves_steps(self):
        x = chunked.l2(keys_of(192, 8, 9))[None]
        warm, cold = (fista.gates(x, 1.3, RIDGE, 20.0, [184, 192], warm_start=w)[1] for w in (True, False))
        self.assertLess(int(warm[3]), int(cold[3]))
        self.assertLess(float((warm[0] - cold[0]).abs().max()), 0.05)

    def test_gradients_through_the_system(self):
        x = torch.stack([keys_of(10, 2, s) for s in (0, 1)]).requires_grad_()
        options = fista.serving(0.01, tolerance=1e-6)
        check(self, lambda x: fista.gates(x, 1.2, 0.01, 5.0, [10], options)[0][:2], x)
        tall = torch.cat([x.detach(), 50.0 * keys_of(2, 2, 2)[None].expand(2, -1, -1)], 1).requires_grad_()
        exact = [exact_gate.exact_gate(row, 1.2, 0.01, 5.0)[0] for row in tall]
        torch.stack(exact).square().sum().backward()
        want = tall.grad.clone()
        tall.grad = None
        fista.gates(tall, 1.2, 0.01, 5.0, [12], options)[0][0].square().sum().backward()
        self.assertLess(float((tall.grad - want).abs().max()), 1e-6 * float(want.abs().max()))

    def test_an_empty_margin_set_in_a_batch(self):
        keys, sigma, mass = make_sv_vectors.key_sets()["no_margin"]
        x = torch.stack([torch.from_numpy(keys), keys_of(5, 2, 3)]).requires_grad_()
        (a, rho, _, _), = fista.gates(x, sigma, RIDGE, mass, [5])
        self.assertEqual(sorted(a[0].tolist()), [0.0, 0.0, 1.0, 1.0, 1.0])
        (a.sum() + rho.sum()).backward()
        self.assertTrue(bool(torch.isfinite(x.grad).all()))

    def test_training_is_nearer_to_what_is_served_than_eighty_steps(self):
        x = chunked.l2(keys_of(256, 64, 10))
        want, _ = exact_gate.exact_gate(x, 2.0, RIDGE, 64.0)
        apart = []
        for options in (fista.paper(64.0), fista.serving(RIDGE)):
            (a, _, _, _), = fista.gates(x[None].float(), 2.0, RIDGE, 64.0, [256], options)
            apart.append(float((a[0].double() - want).abs().sum()) / 64.0)
        self.assertGreater(apart[0], 0.01)
        self.assertLess(apart[1], 1e-3)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class StoredVectorsTest(unittest.TestCase):
    """What C++ is checked with is still what this side computes."""

    def compare(self, got, want, at):
        if isinstance(want, dict):
            self.assertEqual(set(got), set(want), at)
            for key in want:
                self.compare(got[key], want[key], f"{at}.{key}")
        elif isinstance(want, list) and want and isinstance(want[0], dict):
            self.assertEqual(len(got), len(want), at)
            for i, (g, w) in enumerate(zip(got, want)):
                self.compare(g, w, f"{at}[{i}]")
        elif isinstance(want, str):
            self.assertEqual(got, want, at)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9, err_msg=at)

    def test_are_reproduced(self):
        with open(make_sv_vectors.PATH) as f:
            stored = json.load(f)
        self.compare(make_sv_vectors.plain(make_sv_vectors.vectors()), stored, "")


if __name__ == "__main__":
    unittest.main()
