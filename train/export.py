"""Checkpoint of trainer.py -> model directory.   python3 train/export.py CHECKPOINT [models/lethe-tiny]"""

import os
import sys

import lethe_io
import trainer


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "lethe-tiny")
    config = trainer.read_config(sys.argv[1])
    weights = trainer.split_flat(trainer.read_flat(sys.argv[1]), config)
    lethe_io.save_model(sys.argv[2] if len(sys.argv) > 2 else default, config, weights)


if __name__ == "__main__":
    main()
