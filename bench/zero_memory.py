#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Memory per rank under ZeRO against its formula: a GPT of 100 million parameters, AdamW in float32, stages 0 to 3 on 2 and 4 processes.

  bench/zero_memory.py [--ranks 2,4] [--stages 0,1,2,3] [--build build/release] [--set KEY=VALUE ...]

`measured` is what `trireme summary --measure` counts in LibTorch's allocator and the ranks' shared memory (never RSS); `PSS` is the
proportional set size less the process before the run, the mean over ranks. The formula is (weights + gradients + states), each
divided by n where the stage says so; beside it the plan with buffers and activations.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = ["model.layers=14", "model.width=768", "model.heads=12", "model.context=64", "model.tied_head=true", 'data.type="dummy"',
         "train_micro_batch_size_per_gpu=1", "gradient_accumulation_steps=1"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--stages", default="0,1,2,3")
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--set", action="append", default=[])
    args = p.parse_args()
    print("ranks stage   formula    states  ratio |  planned  measured  ratio |      PSS   (MiB a rank)")
    for n in map(int, args.ranks.split(",")):
        for stage in map(int, args.stages.split(",")):
            command = [os.path.join(args.build, "bin", "trireme"), "summary", os.path.join(ROOT, "examples", "gpt.json"), "--measure",
                       "--nproc-per-node", str(n), "--json", "-", "--set", f"zero_optimization.stage={stage}"]
            for s in MODEL + args.set:
                command += ["--set", s]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)}:\n{done.stderr}")
            report = json.loads(done.stdout)
            psi = report["parameters"]
            formula = psi * (4 / (n if stage >= 3 else 1) + 4 / (n if stage >= 2 else 1) + 8 / (n if stage >= 1 else 1))
            plan, seen = report["predicted"], report["measured"]
            states = seen["weights"] + seen["gradients"] + seen["optimizer"]
            mib = 1 << 20
            print(f"{n:5} {stage:5} {formula / mib:9.1f} {states / mib:9.1f} {states / formula:6.3f} |{plan['total'] / mib:9.1f} "
                  f"{seen['total'] / mib:9.1f} {seen['total'] / plan['total']:6.3f} |{seen['resident_of_all_ranks'] / n / mib:9.1f}", flush=True)


if __name__ == "__main__":
    main()
