"""Writes recall cases for the served model: what lethe bench recall and tests/server read (server/bench/recall_cases.h).

    python3 train/recall_cases.py OUT [--text FILE] [--cases N] [--seed S] [--lengths FROM TO] [--back N]

One JSON object a line: the text in parts, every record under its own subject label, the query, the value, and how far
the record lies back. Names and values are of the class that training never sees (data.py). The default text is
deploy/texts, which ships with the project; tests/testdata/recall/cases.jsonl is `--cases 12 --seed 1 --lengths 1100 1500`.
"""

import argparse
import glob
import json
import os
import re

import numpy as np

import data

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
RECORD = re.compile(r"\[Record\] \w+ (\S+) \w+ \w+\.[\n ]")


def own_text():
    """deploy/texts joined, and once more, so that a slice of 1,900 bytes may start anywhere."""
    parts = []
    for path in sorted(glob.glob(os.path.join(ROOT, "deploy", "texts", "*.txt"))):
        with open(path, "rb") as f:
            parts.append(f.read())
    return np.frombuffer(b"".join(parts) * 2, np.uint8)


def split(prompt):
    """[(text, subject)]: every record apart from the text around it."""
    parts, done = [], 0
    for found in RECORD.finditer(prompt):
        parts += [(prompt[done:found.start()], ""), (found.group(), found.group(1))]
        done = found.end()
    return [p for p in parts + [(prompt[done:], "")] if p[0]]


def make_case(rng, text, args):
    """None where the slice is no UTF-8: JSON holds characters."""
    prompt, answer, back = data.evaluation_case(rng, text, args.back, args.lengths)
    try:
        prompt = prompt.decode()
    except UnicodeDecodeError:
        return None
    at = prompt.rindex("[Query]")
    query = prompt[at:]
    case = {"parts": split(prompt[:at]), "subject": query.split()[2], "query": query, "answer": answer.decode(), "back": back}
    told = "".join(p for p, _ in case["parts"])
    assert told + query == prompt and f"[Record]{query[7:]}{case['answer']}" in told
    return case


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--text", help="default: deploy/texts")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs=2, default=(1100, 1900))
    parser.add_argument("--back", type=int, default=1000)
    args = parser.parse_args()
    text = data.load_text(args.text) if args.text else own_text()
    rng = np.random.default_rng(args.seed)
    done = 0
    with open(args.out, "w") as f:
        while done < args.cases:
            case = make_case(rng, text, args)
            if case:
                f.write(json.dumps(case, separators=(",", ":")) + "\n")
                done += 1


if __name__ == "__main__":
    main()
