#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job of which a rank is killed every 20 seconds on average, beside one that is left alone.

  bench/kills.py [--minutes 10] [--every 20] [--seed 1] [--ranks 2] [--build build/release]

Both are `trireme train` with --max-restarts, a checkpoint every second and a snapshot every tenth, in the same minutes; their steps sleep for 50 ms, so that they do
not take each other's cores. The figure: the steps that stand at the end, as a part of the calm job's; bound 85 %.
"""
import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job  # noqa: E402


def last_step(run):
    last = 0
    with open(run + "/metrics.jsonl") as lines:
        for line in lines:
            try:
                last = json.loads(line).get("step", last)
            except ValueError:  # half a line of a killed writer
                pass
    return last


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--every", type=float, default=20, help="seconds from kill to kill, on average")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--build", default=job.BUILD)
    args = p.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        config = job.tiny_config(folder)

        def start(name):
            words = [job.trireme(args.build), "train", config, "--nproc-per-node", str(args.ranks), "--run-dir", os.path.join(folder, name),
                     "--steps", "1000000", "--max-restarts", "1000000", "--set", "checkpoint.every=20", "--set", "checkpoint.async=true",
                     "--set", "steps_per_print=20", "--set", "checkpoint.snapshot_every=2"]
            return job.Job(words, {"TRIREME_FAILPOINTS": "train.step=sleep(50)"})

        with start("calm") as calm, start("killed") as killed:
            for one in (calm, killed):
                one.wait_for("20/1000000", 120)
            before = [last_step(os.path.join(folder, name)) for name in ("calm", "killed")]
            end, kills = time.monotonic() + 60 * args.minutes, 0
            while True:
                pause = draw.expovariate(1 / args.every)
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
                if time.monotonic() >= end:
                    break
                try:
                    os.kill(killed.rank(draw.randrange(args.ranks)), signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
                if killed.process.poll() is not None:
                    sys.exit("the job ended:\n" + "".join(line for _, line in killed.lines[-30:]))
            done = [last_step(os.path.join(folder, name)) - b for name, b in zip(("calm", "killed"), before)]
    part = 100 * done[1] / max(1, done[0])
    print(f"{kills} kills in {args.minutes:g} minutes (seed {args.seed}): {done[1]} steps, the calm job {done[0]}: {part:.1f} % (bound 85 %"
          f"{': MISSED' if part < 85 else ''})")


if __name__ == "__main__":
    main()
