"""Identities of the papers that the plain definition must satisfy. Run: python3 -m unittest discover -s train"""

import os
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    raise unittest.SkipTest("numpy is not installed") from missing

import lethe_io
import sv_gate

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import chunked
    import data
    import make_vectors as mv
    import reference


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class PalimpsaTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = (normal(50, 8, seed=s) for s in (1, 2, 3))
        self.b = torch.sigmoid(normal(50, 8, seed=4))
        self.log_decay = -0.1 * torch.rand(50, dtype=torch.float64)

    def test_bayesian_recursion_equals_two_scans(self):
        got = reference.palimpsa_head(self.q, self.k, self.v, self.b, self.log_decay, 1.0)
        precision, mean = torch.ones(8, 8, dtype=torch.float64), torch.zeros(8, 8, dtype=torch.float64)
        for t in range(50):
            decay, old = torch.exp(self.log_decay[t]), precision
            precision = decay * old + (1 - decay) + torch.outer(self.b[t], self.k[t] ** 2)
            mean = decay * old / precision * mean + torch.outer(self.v[t], self.k[t]) / precision
            self.assertLess(float((mean @ self.q[t] - got[t]).abs().max()), 1e-12)

    def test_without_importance_is_the_mamba2_recurrence(self):
        got = reference.palimpsa_head(self.q, self.k, self.v, torch.zeros_like(self.b), self.log_decay, 1.0)
        state = torch.zeros(8, 8, dtype=torch.float64)
        for t in range(50):
            state = torch.exp(self.log_decay[t]) * state + torch.outer(self.v[t], self.k[t])
            self.assertLess(float((state @ self.q[t] - got[t]).abs().max()), 1e-12)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class VlaTest(unittest.TestCase):
    def test_rls_is_ridge_regression(self):
        q, k, v = (normal(64, 12, seed=s) for s in (1, 2, 3))
        group = {"variant": "rls", "nudge": False, "lambda0": 0.3, "read_norm": "rms"}
        got = reference.vla_head(q, k, v, None, group, torch.ones(12, dtype=torch.float64))
        keys = reference.l2(torch.nn.functional.elu(k) + 1)
        gram = 0.3 * torch.eye(12, dtype=torch.float64) + keys.T @ keys
        want = (v.T @ keys) @ torch.linalg.inv(gram) @ (torch.nn.functional.elu(q[-1]) + 1)
        want = reference.rms_norm(want, torch.ones(12, dtype=torch.float64), 1e-12)
        self.assertLess(float((got[-1] - want).abs().max()), 1e-10)

    def test_rank_one_step_norm_has_the_closed_form(self):
        # papers.md 3.2: ‖I − α̂k̂ᵀ‖₂ = (1 + √(5 − 4c))/2 with c = α̂·k̂, not 1.
        a, b = reference.l2(normal(12, seed=1)), reference.l2(normal(12, seed=2))
        norm = torch.linalg.matrix_norm(torch.eye(12, dtype=torch.float64) - torch.outer(a, b), 2)
        self.assertAlmostEqual(float(norm), (1 + float(torch.sqrt(5 - 4 * (a @ b)))) / 2, places=9)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OvqTest(unittest.TestCase):
    def test_slots_are_running_means_of_their_tokens(self):
        k, v = reference.l2(normal(256, 8, seed=1)), normal(256, 6, seed=2)
        dk, dv, count, gaps = [], [], [], []
        for s in range(0, 256, 64):
            reference.ovq_update(dk, dv, count, k[s:s + 64], v[s:s + 64], s, 24, gaps)
        slot = chunked.ovq_assign(k[None, :, None], 24)[0, 0]
        self.assertEqual(len(count), reference.slots_after(24, 256))
        for n in range(len(count)):
            members = slot == n
            self.assertEqual(int(members.sum()), count[n])
            self.assertLess(float((k[members].mean(0) - dk[n]).abs().max()), 1e-12)
            self.assertLess(float((v[members].mean(0) - dv[n]).abs().max()), 1e-12)

    def test_equal_keys_take_lowest_ranks_and_slots(self):
        k = torch.full((128, 4), 0.5, dtype=torch.float64)  # exact in the running mean, so that ties stay ties
        dk, dv, count = [], [], []
        for s in range(0, 128, 64):
            reference.ovq_update(dk, dv, count, k[s:s + 64], k[s:s + 64] * 0, s, 8, [])
        # First chunk: 7 slots, ranks 0…6; the other 57 tokens tie and go to slot 0, as does the whole second chunk.
        self.assertEqual(count, [58 + 64, 1, 1, 1, 1, 1, 1])

    def test_growth_never_reaches_the_limit(self):
        self.assertEqual(reference.slots_after(512, 511 * 512), 511)
        self.assertEqual(reference.slots_after(512, 10 ** 12), 511)


class GateTest(unittest.TestCase):
    def check(self, keys, mass, sigma=1.0, ridge=2.0 ** -11):
        sol = sv_gate.solve(keys, sigma, ridge, mass)
        self.assertLessEqual(sol["kkt"], 1e-12 * max(mass, 1))
        self.assertAlmostEqual(sol["a"].sum(), min(mass, len(keys)), places=9)
        self.assertTrue(np.all((sol["a"] >= 0) & (sol["a"] <= 1)))
        return sol

    def test_optimality(self):
        rng = np.random.default_rng(0)
        for n, mass in ((40, 7), (100, 30.5), (64, 63), (200, 20)):
            keys = rng.standard_normal((n, 6))
            self.check(keys / np.linalg.norm(keys, axis=1, keepdims=True), mass)

    def test_duplicates(self):
        keys = np.repeat(np.random.default_rng(1).standard_normal((12, 4)), 5, axis=0)
        sol = self.check(keys, 9)
        # The ridge makes the optimum unique, so copies of one key share its weight.
        self.assertLess(np.ptp(sol["a"].reshape(12, 5), axis=1).max(), 1e-9)

    def test_small_prefix_is_all_ones(self):
        np.testing.assert_array_equal(sv_gate.solve(np.eye(5), 1.0, 1e-3, 5)["a"], np.ones(5))


class FileTest(unittest.TestCase):
    def test_round_trip_and_rounding(self):
        config = {"width": 8, "vocab_size": 16, "layers": [{"type": "mlp", "mlp_width": 16}]}
        weights = lethe_io.init_weights(config, 0)
        with tempfile.TemporaryDirectory() as folder:
            lethe_io.save_model(folder, config, weights)
            _, back = lethe_io.load_model(folder)
            self.assertEqual(os.path.getsize(os.path.join(folder, "model.safetensors")) % 2, 0)
        want = lethe_io.round_stored(weights)
        for name, value in want.items():
            np.testing.assert_array_equal(back[name], value)

    def test_bf16_rounds_to_nearest_even(self):
        x = np.array([1.0, 1.0 + 2.0 ** -8, 1.0 + 3 * 2.0 ** -8, -3.14159], np.float32)
        np.testing.assert_array_equal(lethe_io.round_bf16(x), np.array([1.0, 1.0, 1.0 + 2.0 ** -6, -3.140625], np.float32))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class DataTest(unittest.TestCase):
    def setUp(self):
        self.text = np.frombuffer(b"Some line of text that stands for a book.\n" * 400, np.uint8)

    def test_training_never_uses_held_out_words(self):
        rng = np.random.default_rng(0)
        for statement, _, answer in data.make_records(rng, 50, False, True):
            self.assertFalse(data.is_heldout(statement.split()[2]) or data.is_heldout(answer.strip(" .")))

    def test_answers_stand_where_the_spans_say(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            sequence, spans = data.training_sequence(rng, self.text, 1025)
            self.assertEqual(len(sequence), 1025)
            for begin, end in spans:
                answer = sequence[begin:end].decode()
                self.assertTrue(answer.startswith(" ") and answer.endswith("."), answer)

    def test_forgotten_case_has_no_trace_of_the_record(self):
        case = data.evaluation_case(np.random.default_rng(0), self.text)
        prompt, answer, _ = data.forgotten_case(case)
        self.assertEqual(answer.decode(), data.UNKNOWN)
        self.assertNotIn(case[1].strip(b" ."), prompt)
        self.assertGreaterEqual(case[2], 1000)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class StoredVectorTest(unittest.TestCase):
    def test_stored_logits_are_the_definition_s(self):
        import json
        for name in ("exact", "vla"):
            folder = os.path.join(mv.DATA, name)
            config, weights = lethe_io.load_model(folder)
            with open(os.path.join(folder, "vectors.json")) as f:
                stored = json.load(f)
            got = reference.forward(config, reference.to_torch(weights), stored["vocab_ids"])["logits"]
            want = torch.tensor(stored["logits"], dtype=torch.float64)
            self.assertLess(float((got[stored["positions"]] - want).abs().max()), 1e-9)


if __name__ == "__main__":
    unittest.main()
