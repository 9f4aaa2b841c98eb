#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the launcher's watch costs a calm job: steps with and without it, and the CPU time of the launcher itself.

  bench/calm.py [--pairs 5] [--steps 8000] [--workers 8] [--seconds 20] [--build build/release]

Steps: an MLP (784-256-10, 64 a rank) on two ranks under `trireme train`, with everything on (hangs watched, use of CPUs sampled) and with
--hang-timeout off; pairs alternate, the figure is the median of the ratios of their median steps; bound 1 %. The launcher: its CPU time in
the first of each pair, and while so many workers sleep; bound 0.5 % of a CPU. Void at a foreign load above 5 %.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job  # noqa: E402
import load as load_of  # noqa: E402

MLP = {"model": {"type": "mlp", "inputs": 784, "hidden": [256], "outputs": 10}, "data": {"type": "dummy"},
       "train_micro_batch_size_per_gpu": 64, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
       "checkpoint": {"at_end": False}, "steps_per_print": 1000000}


START = 4  # seconds that a launcher may take to start its ranks; they do not count


def train(args, folder, more):
    """The median step in milliseconds, and the launcher's part of a CPU."""
    config = os.path.join(folder, "mlp.json")
    with open(config, "w") as file:
        json.dump(MLP, file)
    run = tempfile.mkdtemp(dir=folder) + "/run"
    words = [job.trireme(args.build), "train", config, "--nproc-per-node", "2", "--run-dir", run, "--steps", str(args.steps), *more]
    with job.Job(words) as one:
        launched = time.monotonic()
        first = last = None
        while one.process.poll() is None:
            try:
                last = (one.cpu_seconds(), time.monotonic())
            except (OSError, IndexError):
                break
            if first is None and last[1] - launched > START:
                first = last
            time.sleep(0.1)
        if one.process.wait() != 0:
            sys.exit("".join(line for _, line in one.lines))
    steps = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    ms = [s["step_ms"] for s in steps if "step_ms" in s]
    if first is None or last[1] - first[1] < START:
        sys.exit(f"a run of {last[1] - launched:.1f} s says nothing of the launcher: --steps is too small")
    return statistics.median(ms[len(ms) // 10:]), (last[0] - first[0]) / (last[1] - first[1])


def launcher_part(args):
    with job.Job([job.trireme(args.build), "run", "--nproc-per-node", str(args.workers), "sleep", "1000"]) as one:
        one.rank(args.workers - 1)
        time.sleep(1)
        begin, used = time.monotonic(), one.cpu_seconds()
        time.sleep(args.seconds)
        return (one.cpu_seconds() - used) / (time.monotonic() - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--steps", type=int, default=8000)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--build", default=job.BUILD)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:

        def pair():
            with load_of.Load() as load:
                figures = train(args, folder, []), train(args, folder, ["--hang-timeout", "off"])
            return figures, load.foreign

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    ratios = [on[0] / off[0] for on, off in kept]
    cost = 100 * (statistics.median(ratios) - 1)
    print(f"a step of {statistics.median(off[0] for _, off in kept):.3f} ms costs {cost:+.2f} % "
          f"[{100 * (min(ratios) - 1):+.2f}, {100 * (max(ratios) - 1):+.2f}] with everything on (bound 1 %{': MISSED' if cost > 1 else ''}); "
          f"{load_of.verdict(foreign, thrown)}")
    # Its start, some 30 ms of reading the machine, is in it.
    part = 100 * statistics.median(on[1] for on, _ in kept)
    print(f"the launcher of these ranks: {part:.2f} % of a CPU")
    idle = 100 * launcher_part(args)
    print(f"the launcher of {args.workers} workers that sleep: {idle:.3f} % of a CPU (bound 0.5 %{': MISSED' if idle > 0.5 else ''})")


if __name__ == "__main__":
    main()
