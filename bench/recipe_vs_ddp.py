#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A step of the question-answering recipe: ours against the same network in PyTorch DDP on Gloo, two processes each.

  ninja -C build/release example_qa && bench/recipe_vs_ddp.py [--pairs 5] [--build build/release] [--json FILE]

BERT-base's width with 2 layers, random pieces of 384 (the recipe's DummyDataset), AdamW, dropout 0.1. A pair runs ours and the peer one after
the other; the ratio is the median over pairs, and is wanted at 1.2 or more. The peer runs as it does best: unpinned and pinned in the
first pair, then the better of both; Q, K and V in one product; gradients as views of its buckets. A pair under a foreign load above 5 %
is measured again, and where that does not help the row is void. Needs Debian's python3-torch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402
import training_vs_ddp as ddp  # noqa: E402

STEPS, WARM_UP, ROWS, WANTED = 14, 3, 4, 1.2
ddp.STEPS["recipe"], ddp.BATCH["recipe"] = (STEPS, WARM_UP), ROWS
OURS = {"train_batch_size": 2 * ROWS, "train_micro_batch_size_per_gpu": ROWS, "gradient_clipping": 0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 1e-4}},
        "training": {"steps": STEPS, "epochs": 0, "eval_every": 0}, "checkpoint": {"every": 0, "at_end": False},
        "monitor": {"progress": False}, "qa": {"dummy_dataset": True, "num_hidden_layers": 2}}


def run_ours(args, folder):
    run = tempfile.mkdtemp(dir=folder)
    config = os.path.join(run, "recipe.json")
    with open(config, "w") as out:
        json.dump(OURS, out)
    command = [os.path.join(args.build, "examples", "qa"), config, "--nproc-per-node", "2", "--run-dir", os.path.join(run, "run")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.timeout)
    if done.returncode != 0:
        sys.exit(f"ours failed ({' '.join(command)}):\n{done.stdout}")
    metrics = os.path.join(run, "run", "metrics.jsonl")
    return ddp.rate_of(metrics, "recipe"), ddp.exposed_of(metrics, "recipe")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--build", default=os.path.join(ddp.ROOT, "build", "release"))
    p.add_argument("--json")
    p.add_argument("--timeout", type=float, default=900)
    args = p.parse_args()
    pin = None
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        def pair():
            nonlocal pin
            with load_of.Load() as ours:
                rate, exposed = run_ours(args, folder)
            if pin is None:
                both = {how: ddp.run_peer(args, "recipe", how) for how in ("none", "rank")}
                pin = max(both, key=both.get)
            with load_of.Load() as peer:
                theirs = ddp.run_peer(args, "recipe", pin)
            figures = {"ours": rate, "exposed": exposed, "ours_cpu": ours.cpu, "peer": theirs, "peer_cpu": peer.cpu}
            return figures, max(ours.foreign, peer.foreign)

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    middle = {key: statistics.median(k[key] for k in kept) for key in kept[0]}
    ratios = [k["ours"] / k["peer"] for k in kept]
    row = {**middle, "ratio": statistics.median(ratios), "ratios": ratios, "peer_pin": pin, "foreign_load": foreign,
           "thrown_away": thrown, "void": foreign > load_of.FOREIGN}
    print(f"recipe  ours {row['ours']:.2f} samples/s (CPU {row['ours_cpu']:.1f} s a run, exposed communication {100 * row['exposed']:.1f} %)  "
          f"PyTorch DDP {row['peer']:.2f} ({'pinned' if pin == 'rank' else 'unpinned'}, CPU {row['peer_cpu']:.1f} s)  "
          f"ratio {row['ratio']:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]  wanted {WANTED}  " + load_of.verdict(foreign, thrown))
    if args.json:
        with open(args.json, "w") as out:
            json.dump(row, out)


if __name__ == "__main__":
    main()
