#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What training.reproducible costs: the GPT of examples/gpt.json on two processes, with and without it, at the same leaves.

  bench/reproducible_cost.py [--pairs 5] [--accumulation 2] [--build build/release]

Pairs alternate in one run; the figure is the median of the ratios of the rates. Void at a foreign load above 5 %.
"""
import argparse
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402
import training_vs_ddp as bench  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--accumulation", type=int, default=2, help="leaves of a rank in a step")
    p.add_argument("--build", default=os.path.join(bench.ROOT, "build", "release"))
    p.add_argument("--timeout", type=float, default=900)
    args = p.parse_args()
    plain = list(bench.OPTIMIZER["gpt"]) + [f"gradient_accumulation_steps={args.accumulation}"]
    leaves = 2 * args.accumulation
    settings = {"plain": plain, "reproducible": plain + ["training.reproducible=true", f"training.leaves={leaves}"]}
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:

        def pair():
            figures, foreign = {}, 0.0
            for name, sets in settings.items():
                bench.OPTIMIZER["gpt"] = sets
                with load_of.Load() as load:
                    figures[name] = bench.run_ours(args, "gpt", 2, folder)[0][0]
                foreign = max(foreign, load.foreign)
            return figures, foreign

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    rates = {name: [k[name] for k in kept] for name in settings}
    ratios = [k["plain"] / k["reproducible"] for k in kept]
    print(f"GPT, 2 processes, {leaves} leaves of {bench.BATCH['gpt']}: plain {statistics.median(rates['plain']):.2f} samples/s, reproducible "
          f"{statistics.median(rates['reproducible']):.2f}; it costs {100 * (statistics.median(ratios) - 1):.1f} % "
          f"[{100 * (min(ratios) - 1):.1f}, {100 * (max(ratios) - 1):.1f}]; {load_of.verdict(foreign, thrown)}")


if __name__ == "__main__":
    main()
