"""Two processes that share a batch take the step that one process takes on all of it."""

import os
import tempfile
import unittest

try:
    import numpy as np
    import torch
    import torch.multiprocessing
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing

import lethe_io
import make_vectors as mv
import ranks
import trainer

CONFIG = mv.make_config("test", 32, [mv.local(32), mv.memory(mv.group("palimpsa_d", 2, 16, rank=8))])


def batch():
    rng = np.random.default_rng(3)
    weight = np.where(rng.random((4, 64)) < 0.2, 4.0, 1.0)  # the two halves weigh differently
    return torch.from_numpy(rng.integers(0, 256, (4, 65))), torch.from_numpy(weight)


def gradients(group):
    """{name: gradient} of the whole batch, from this rank's share of it."""
    torch.set_num_threads(1)
    weights = {n: torch.from_numpy(w).double().requires_grad_() for n, w in lethe_io.init_weights(CONFIG, 0).items()}
    share = group.share(4)
    ids, weight = (x[group.rank * share:(group.rank + 1) * share] for x in batch())
    loss = trainer.loss_of(CONFIG, weights, ids, weight, 0, None, None, whole=group.total(weight.sum()))
    loss.backward()
    group.sum_gradients(weights.values())
    return {n: w.grad.numpy() for n, w in weights.items()} | {"loss": group.total(loss).detach().numpy()}


def one_rank(rank, directory):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    group = ranks.Ranks("cpu", "file://" + os.path.join(directory, "meet"))
    np.savez(os.path.join(directory, f"{rank}.npz"), **gradients(group))
    group.close()


class RanksTest(unittest.TestCase):
    def test_gradients_equal_those_of_one_process(self):
        want = gradients(ranks.Ranks("cpu"))
        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.start_processes(one_rank, (directory,), nprocs=2, start_method="fork")
            for rank in range(2):
                got = np.load(os.path.join(directory, f"{rank}.npz"))
                self.assertEqual(set(got), set(want))
                for name, value in want.items():
                    self.assertLess(np.abs(got[name] - value).max(), 1e-12 * max(1.0, np.abs(value).max()), name)

    def test_batch_that_does_not_divide(self):
        group = ranks.Ranks("cpu")
        group.world = 3
        with self.assertRaisesRegex(ValueError, "4 sequences does not divide among 3"):
            group.share(4)

    def test_time_is_no_length_for_several(self):
        group = ranks.Ranks("cpu")
        group.world = 2
        with self.assertRaisesRegex(ValueError, "in tokens"):
            trainer.run_stage(trainer.parse_stage("64:4:1M@10:1e-3:1e-3:0:0"), CONFIG, {}, None, None, {}, None, group, print)


if __name__ == "__main__":
    unittest.main()
