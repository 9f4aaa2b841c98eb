#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long does a job take from the death of a rank to its next finished step, beside its own cold start?

  bench/restart.py [--build build/release] [--ranks 4] [--rounds 5] [--zero 0] [--width 256] [--layers 4] [--disk] [--json FILE]

Each round starts a job (a GPT on dummy data, checkpoint.async, a snapshot every 2 steps), notes when its first step is done, kills rank 1 by
SIGKILL behind the first checkpoint, and notes when the launcher says so and when the next step is done. The bound is 1.2 × the cold start of
the same round + 0.5 s. Reads of steps in the run folder are counted: from memory there are none. With --disk the same without snapshots
in memory (checkpoint.async=false), where they are read. Ends with 1 if the median is above the bound, or if memory was not what the
job went on from.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

STEP = re.compile(r"step: +(\d+)/")
READS = ("read", "pread", "pread_cached", "map")


def rank_of(launcher, rank):
    """The process of a rank that the launcher has started."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            if parent != launcher:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                if f"RANK={rank}".encode() in file.read().split(b"\0"):
                    return int(name)
        except OSError:
            pass
    sys.exit(f"rank {rank} is not there")


class Job:
    """Lines of its stderr, with the time at which each came."""

    def __init__(self, words, environment):
        self.begin = time.monotonic()
        self.lines = []
        self.came = threading.Condition()
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            with self.came:
                self.lines.append((time.monotonic(), line))
                self.came.notify_all()
        with self.came:
            self.lines.append((time.monotonic(), None))
            self.came.notify_all()

    def wait_for(self, what, after=0, patience=300):
        """The time and the number of the first line from `after` on of which `what` says yes."""
        end = time.monotonic() + patience
        with self.came:
            while True:
                while after < len(self.lines):
                    at, line = self.lines[after]
                    if line is None or time.monotonic() > end:
                        break
                    if what(line):
                        return at, after
                    after += 1
                if time.monotonic() > end or (self.lines and self.lines[-1][1] is None):
                    sys.exit("the job did not say what it should:\n" + "".join(line or "" for _, line in self.lines))
                self.came.wait(1)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()


def one_round(args, folder):
    run, calls = os.path.join(folder, "run"), os.path.join(folder, "calls")
    sets = ["model.type=gpt", f"model.layers={args.layers}", f"model.width={args.width}", "model.heads=4", "model.context=32",
            "data.type=dummy", "train_micro_batch_size_per_gpu=1", "optimizer.type=AdamW", "steps_per_print=1",
            "checkpoint.every=2", f"checkpoint.async={'false' if args.disk else 'true'}", f"zero_optimization.stage={args.zero}"]
    config = os.path.join(folder, "config.json")
    with open(config, "w") as file:
        file.write("{}")
    words = [os.path.join(args.build, "bin", "trireme"), "train", config, "--nproc-per-node", str(args.ranks), "--run-dir", run,
             "--max-restarts", "3", "--steps", "1000000"]
    for text in sets:
        words += ["--set", text]
    job = Job(words, dict(os.environ, TRIREME_FILE_FAULTS=f"only={run}/step-,count={calls}"))
    try:
        first, at = job.wait_for(STEP.search)
        _, at = job.wait_for(lambda line: (m := STEP.search(line)) and int(m.group(1)) >= 8, at)
        killed = time.monotonic()
        os.kill(rank_of(job.process.pid, 1), signal.SIGKILL)
        said, at = job.wait_for(lambda line: "start again" in line, at)
        _, at = job.wait_for(lambda line: "going on after step" in line, at)
        memory = "from the memory" in job.lines[at][1]
        done, _ = job.wait_for(STEP.search, at)
    finally:
        job.end()
    reads = 0
    if os.path.exists(calls):
        with open(calls) as file:
            reads = sum(line.split("\t")[2] in READS for line in file)
    cold = first - job.begin
    return {"cold_s": cold, "killed_to_said_s": said - killed, "killed_to_step_s": done - killed,
            "ratio": (done - killed) / (1.2 * cold + 0.5), "memory": memory, "reads": reads}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--zero", type=int, default=0)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--disk", action="store_true")
    p.add_argument("--json")
    args = p.parse_args()
    rounds = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="trireme-restart-") as folder:
            row = one_round(args, folder)
        rounds.append(row)
        print(f"cold start to the first step {row['cold_s']:.2f} s; killed → said {row['killed_to_said_s']:.2f} s, → next step "
              f"{row['killed_to_step_s']:.2f} s; {row['ratio']:.2f} of the bound; from {'memory' if row['memory'] else 'disk'}, "
              f"{row['reads']} reads of checkpoints", flush=True)
    median = {key: statistics.median(row[key] for row in rounds) for key in ("cold_s", "killed_to_said_s", "killed_to_step_s", "ratio")}
    print(f"median of {args.rounds}: cold start {median['cold_s']:.2f} s, restart {median['killed_to_step_s']:.2f} s, "
          f"{median['ratio']:.2f} of 1.2 × the cold start + 0.5 s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"rounds": rounds, "median": median, "arguments": vars(args)}, file)
    fine = args.disk or all(row["memory"] and row["reads"] == 0 for row in rounds)
    return 0 if median["ratio"] <= 1 and fine else 1


if __name__ == "__main__":
    sys.exit(main())
