"""The training forms equal the plain definition, in float64. Run: python3 -m unittest discover -s train"""

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
    import lethe_io
    import make_vectors as mv
    import network
    import reference
    import sv_gate


def exact_gates(k, group):
    """[B, H, n, T] from the exact solver: what separates the forms is then rounding only."""
    k = k.detach()
    b, t, h, _ = k.shape
    keys = (k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-12)).double().numpy()
    out = torch.zeros(b, h, t // lethe_io.GRID, t, dtype=k.dtype)
    for i in range(b):
        for j in range(h):
            for c in range(1, t // lethe_io.GRID):
                s = c * lethe_io.GRID
                sol = sv_gate.solve(keys[i, :s, j], group["sigma"], group["ridge"], group["box_mass"])
                out[i, j, c, :s] = torch.from_numpy(sol["a"])
    return out


@unittest.skipIf(torch is None, "PyTorch is not installed")
class ChunkedEqualsPlainTest(unittest.TestCase):
    def check(self, layers, width=32, tokens=256, seed=0, tol=1e-9):
        torch.set_num_threads(1)
        config = mv.make_config("test", width, layers)
        weights = mv.perturb(lethe_io.init_weights(config, seed), np.random.default_rng(seed))
        weights = reference.to_torch(weights)
        ids = np.random.default_rng(seed + 1).integers(0, 256, tokens)
        want = reference.forward(config, weights, ids)["logits"]
        got = network.forward(config, weights, torch.as_tensor(ids)[None], exact_gates)[0]
        self.assertLess(float((got - want).abs().max()), tol * float(want.abs().max()))

    def test_local_and_mlp(self):
        self.check([mv.local(32), mv.mlp(32), mv.local(32, heads=4, window=64)])

    def test_window_group(self):
        self.check([mv.memory(mv.group("window", 2, 16, window=40, alibi_slopes=[0.05, 0.3]))])

    def test_palimpsa_d(self):
        self.check([mv.memory(mv.group("palimpsa_d", 2, 16, value_dim=24, rank=8))])

    def test_palimpsa_m(self):
        for meta in (True, False):
            self.check([mv.memory(mv.group("palimpsa_m", 2, 16, rank=8, metaplasticity=meta)),
                        mv.memory(mv.group("palimpsa_m", 2, 16, value_dim=24, rank=8, metaplasticity=meta, out_norm="group"))])

    def test_vla(self):
        self.check([mv.local(32), mv.memory(mv.vla(16, heads=2, value_dim=24))])

    def test_vla_rls(self):
        self.check([mv.local(32), mv.memory(mv.vla(16, variant="rls"))], tol=1e-7)

    def test_ovq(self):
        self.check([mv.local(32), mv.memory(mv.group("ovq", 2, 16, slots=24, value_dim=24))])

    def test_ovq_more_slots_than_tokens(self):
        self.check([mv.local(32), mv.memory(mv.group("ovq", 1, 16, slots=512))])

    def test_sv(self):
        self.check([mv.local(32), mv.memory(mv.sv(16, 40, heads=2))])

    def test_all_together(self):
        self.check([mv.local(48), mv.memory(mv.sv(24, 60.5), mv.group("palimpsa_d", 1, 24, rank=8), mv.vla(24),
                                            mv.group("ovq", 2, 24, slots=48)), mv.mlp(48)], width=48)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class GradientsTest(unittest.TestCase):
    """The chunked forms' gradients equal those of the plain definition, token after token, and finite differences."""

    def gradients(self, form, config, weights, ids):
        weights = {n: w.clone().requires_grad_() for n, w in weights.items()}
        logits = form(config, weights, ids)
        (logits * torch.cos(torch.arange(logits.numel(), dtype=logits.dtype)).reshape(logits.shape)).sum().backward()
        return {n: w.grad for n, w in weights.items()}

    def check(self, layers, tokens=128, tol=1e-8):
        torch.set_num_threads(1)
        config = mv.make_config("test", 16, layers, vocab=32)
        weights = reference.to_torch(mv.perturb(lethe_io.init_weights(config, 3), np.random.default_rng(3)))
        ids = np.random.default_rng(4).integers(0, 32, tokens)
        want = self.gradients(lambda c, w, i: reference.forward(c, w, i)["logits"], config, weights, ids)
        got = self.gradients(lambda c, w, i: network.forward(c, w, torch.as_tensor(i)[None])[0], config, weights, ids)
        for name, grad in want.items():
            self.assertIsNotNone(got[name], name)
            self.assertLess(float((got[name] - grad).norm()), tol * (1e-6 + float(grad.norm())), name)

    def test_palimpsa(self):
        self.check([mv.memory(mv.group("palimpsa_d", 2, 8, rank=4), mv.group("palimpsa_m", 1, 8, rank=4, metaplasticity=True))])

    def test_vla(self):
        self.check([mv.memory(mv.vla(8, heads=2), mv.vla(8, variant="rls"))], tol=1e-6)

    def test_ovq_and_local(self):
        self.check([mv.local(16), mv.memory(mv.group("ovq", 2, 8, slots=24)), mv.mlp(16)])

    def random(self, *shape):
        return torch.randn(*shape, dtype=torch.float64)

    def test_palimpsa_by_finite_differences(self):
        torch.manual_seed(0)
        q, k, v, b = (self.random(1, 128, 1, 4) for _ in range(4))
        inputs = [chunked.l2(q), chunked.l2(k), v, torch.sigmoid(b), -0.1 * torch.rand(1, 128, 1, dtype=torch.float64)]
        self.assertTrue(torch.autograd.gradcheck(lambda *x: chunked.palimpsa(*x, 0.5), [x.requires_grad_() for x in inputs],
                                                 fast_mode=True))

    def test_vla_by_finite_differences(self):
        torch.manual_seed(0)
        q, k, v, u = (self.random(1, 128, 1, 4) for _ in range(4))
        inputs = [torch.exp(q), torch.exp(k), v, 0.5 * chunked.l2(u)]
        for rls in (False, True):
            self.assertTrue(torch.autograd.gradcheck(lambda *x, r=rls: chunked.vla(*x[:3], None if r else x[3], 0.1, r),
                                                     [x.requires_grad_() for x in (inputs[:3] if rls else inputs)],
                                                     fast_mode=True))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class GatesTest(unittest.TestCase):
    def test_projected_gradients_reach_the_exact_gate(self):
        import gates
        torch.manual_seed(0)
        k = torch.randn(1, 256, 1, 16, dtype=torch.float64)
        k[:, 100:] = k[:, 100:101] + 0.5 * k[:, 100:]
        group = {"sigma": 1.0, "ridge": 2.0 ** -11, "box_mass": 40}
        got = gates.sv_gates(k, 1.0, 2.0 ** -11, 40, 3000)
        self.assertLess(float((got - exact_gates(k, group)).abs().max()), 2e-3)


if __name__ == "__main__":
    unittest.main()
