#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a step costs under ZeRO: the GPT of examples/gpt.json on two processes, stages 1, 2, 3 (and shared weights) against DDP.

  bench/zero_steps.py [--pairs 5] [--stages 1,2,3] [--build build/release] [--set KEY=VALUE ...]

Each pair runs DDP and every stage one after the other; figures are medians of the ratios of step times. A pair under a foreign
load above 5 % is measured again.
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


def settings_of(stage):
    if stage == "ddp":
        return []
    sets = [f"zero_optimization.stage={stage.split('+')[0]}"]
    if "+" in stage:
        sets.append("zero_optimization.share_weights=true")
    return sets


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--stages", default="1,2,3", help="with +shared for shared weights")
    p.add_argument("--build", default=os.path.join(bench.ROOT, "build", "release"))
    p.add_argument("--timeout", type=float, default=900)
    p.add_argument("--set", action="append", default=[])
    args = p.parse_args()
    base = list(bench.OPTIMIZER["gpt"]) + args.set
    stages = ["ddp"] + args.stages.split(",")
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:

        def pair():
            figures, foreign = {}, 0.0
            for stage in stages:
                bench.OPTIMIZER["gpt"] = base + settings_of(stage)
                with load_of.Load() as load:
                    rate, comm = bench.run_ours(args, "gpt", 2, folder)
                figures[stage] = (rate[0], comm[0])
                foreign = max(foreign, load.foreign)
            return figures, foreign

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    rates, exposed = ({s: [k[s][i] for k in kept] for s in stages} for i in (0, 1))
    print(f"GPT, 2 processes, {args.pairs} pairs; step time as a multiple of DDP's ({statistics.median(rates['ddp']):.2f} samples/s)")
    for stage in stages[1:]:
        ratios = [d / s for d, s in zip(rates["ddp"], rates[stage])]
        print(f"  stage {stage:9} {statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
              f"  exposed communication {100 * statistics.median(exposed[stage]):.1f} % (DDP {100 * statistics.median(exposed['ddp']):.1f} %)")
    print("  " + load_of.verdict(foreign, thrown))


if __name__ == "__main__":
    main()
