"""Training on several GPUs of one host: every process holds all weights and takes its share of each batch.

torchrun starts the processes and sets RANK, LOCAL_RANK and WORLD_SIZE; without it there is one rank, and nothing here communicates.
A step equals the same step on one GPU up to rounding: losses are divided by the whole batch's weight before gradients are summed.
"""

import os

import torch
import torch.distributed as dist


class Ranks:
    def __init__(self, device, rendezvous="env://"):
        """device "cuda" becomes this process's own GPU; rendezvous: where the processes meet, default torchrun's address."""
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.device = torch.device(device)
        if self.world > 1:
            if self.device.type == "cuda":
                self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
                torch.cuda.set_device(self.device)
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, init_method=rendezvous, rank=self.rank, world_size=self.world)

    @property
    def first(self):
        return self.rank == 0

    def share(self, batch):
        if batch % self.world:
            raise ValueError(f"a batch of {batch} sequences does not divide among {self.world} processes")
        return batch // self.world

    def total(self, value):
        """Sum of a tensor over the ranks."""
        if self.world > 1:
            value = value.detach().clone()
            dist.all_reduce(value)
        return value

    def sum_gradients(self, weights):
        """One message for all of them: at this model's size many small ones would cost more than the step."""
        if self.world == 1:
            return
        grads = [w.grad for w in weights]
        flat = self.total(torch.cat([g.reshape(-1) for g in grads]))
        for g, part in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))

    def close(self):
        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()
