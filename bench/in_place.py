#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long do the ranks that are left take from the death of one to their next finished step, beside the job's own cold start?

  bench/in_place.py [--build build/release] [--ranks 4] [--rounds 5] [--zero 0] [--width 256] [--layers 4] [--json FILE]

Each round starts a job (a GPT on dummy data, elastic.mode in_process), notes when its first step is done, kills rank 1 by SIGKILL behind
step 8, and notes when the launcher says so, when the next step is done on the ranks that are left, and when all train again. The bound, from
when the launcher says so to the next step, is 0.4 × the cold start of the same round and 1.5 s. With --zero a snapshot in memory is made
every 2 steps, because the shards of the rank are gone. Ends with 1 if the median is above the bound, or if the ranks did not go on in their
processes.
"""
import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time

from restart import STEP, Job, rank_of


def one_round(args, folder):
    sets = ["model.type=gpt", f"model.layers={args.layers}", f"model.width={args.width}", "model.heads=4", "model.context=32",
            "data.type=dummy", "train_micro_batch_size_per_gpu=1", "optimizer.type=AdamW", "steps_per_print=1", "checkpoint.every=100000",
            "elastic.mode=in_process", f"zero_optimization.stage={args.zero}"]
    if args.zero:
        sets.append("checkpoint.snapshot_every=2")
    config = os.path.join(folder, "config.json")
    with open(config, "w") as file:
        file.write("{}")
    words = [os.path.join(args.build, "bin", "trireme"), "train", config, "--nproc-per-node", str(args.ranks), "--run-dir",
             os.path.join(folder, "run"), "--max-restarts", "3", "--steps", "1000000"]
    for text in sets:
        words += ["--set", text]
    job = Job(words, dict(os.environ))
    try:
        first, at = job.wait_for(STEP.search)
        _, at = job.wait_for(lambda line: (m := STEP.search(line)) and int(m.group(1)) >= 8, at)
        others = {rank: rank_of(job.process.pid, rank) for rank in range(args.ranks) if rank != 1}
        killed = time.monotonic()
        os.kill(rank_of(job.process.pid, 1), signal.SIGKILL)
        # What the launcher says and what ranks say comes on two roads, in no order of its own.
        said, _ = job.wait_for(lambda line: "the others go on" in line, at)
        _, on = job.wait_for(lambda line: "going on in place" in line, at)
        done, _ = job.wait_for(STEP.search, on)
        back, _ = job.wait_for(lambda line: "train from the next step on" in line, at)
        _, on = job.wait_for(lambda line: "going on in place" in line, on + 1)
        whole, _ = job.wait_for(STEP.search, on)
        stayed = all(rank_of(job.process.pid, rank) == pid for rank, pid in others.items())
    finally:
        job.end()
    cold = first - job.begin
    bound = min(0.4 * cold, 1.5)
    return {"cold_s": cold, "killed_to_said_s": said - killed, "said_to_step_s": done - said, "killed_to_all_s": whole - killed,
            "taking_in_s": whole - back, "ratio": (done - said) / bound, "stayed": stayed}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--zero", type=int, default=0)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--json")
    args = p.parse_args()
    rounds = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="trireme-in-place-") as folder:
            row = one_round(args, folder)
        rounds.append(row)
        print(f"cold start to the first step {row['cold_s']:.2f} s; killed → said {row['killed_to_said_s']:.2f} s, → next step "
              f"{row['said_to_step_s']:.2f} s more ({row['ratio']:.2f} of the bound); all train again {row['killed_to_all_s']:.2f} s behind "
              f"the kill, {row['taking_in_s']:.2f} s behind the new worker's coming", flush=True)
    median = {key: statistics.median(row[key] for row in rounds) for key in rounds[0] if key != "stayed"}
    print(f"median of {args.rounds}: cold start {median['cold_s']:.2f} s, next step {median['said_to_step_s']:.2f} s behind the detection, "
          f"{median['ratio']:.2f} of the smaller of 0.4 × the cold start and 1.5 s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"rounds": rounds, "median": median, "arguments": vars(args)}, file)
    return 0 if median["ratio"] <= 1 and all(row["stayed"] for row in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
