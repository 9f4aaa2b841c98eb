#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""64 workers that do nothing under `trireme run`, against a loop that starts 64 processes of /bin/true and waits for them.

  bench/start_many.py [--workers 64] [--pairs 5] [--build build/release]

Pairs alternate in one run; medians, against the bound of 1.5 × the loop + 0.3 s. Void at a foreign load above 5 %.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job  # noqa: E402
import load as load_of  # noqa: E402


def loop(workers):
    begin = time.monotonic()
    for pid in [os.posix_spawn("/bin/true", ["true"], os.environ) for _ in range(workers)]:
        os.waitpid(pid, 0)
    return time.monotonic() - begin


def ours(build, workers):
    begin = time.monotonic()
    done = subprocess.run([job.trireme(build), "run", "--nproc-per-node", str(workers), "/bin/true"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return time.monotonic() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, default=64)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--build", default=job.BUILD)
    args = p.parse_args()
    ours(args.build, args.workers)  # warms the page cache

    def pair():
        with load_of.Load() as load:
            figures = (loop(args.workers), ours(args.build, args.workers))
        return figures, load.foreign

    kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    reference, took = (statistics.median(k[i] for k in kept) for i in (0, 1))
    bound = 1.5 * reference + 0.3
    print(f"{args.workers} workers: {took:.3f} s; the loop {reference:.3f} s; bound 1.5 × that + 0.3 s = {bound:.3f} s"
          f"{': MISSED' if took > bound else ''}; {load_of.verdict(foreign, thrown)}")


if __name__ == "__main__":
    main()
