#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An empty call, p50: ours against torch.distributed.rpc (TensorPipe) calling a TorchScript function, two processes each.

  ninja -C build/release bench/rpc && bench/rpc_vs_torch.py [--pairs 5] [--build build/release]

A pair runs ours and the peer one after the other; the ratio is the median over pairs, and is wanted at 8 or more. Both have a CPU for
each process. The peer runs as it does best: pinned and unpinned in the first pair, then the better of both. A pair under a foreign load
above 5 % is measured again. Needs Debian's python3-torch.
"""
import argparse
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WANTED = 8
PEER = r"""
import os, statistics, sys, time, torch, torch.distributed.rpc as rpc
rank, pinned, path = int(sys.argv[1]), sys.argv[2] == "pinned", sys.argv[3]
torch.set_num_threads(1)
@torch.jit.script
def nothing() -> int:
    return 0
if pinned:
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0] if rank == 0 else cpus[-1]})
options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + path, num_worker_threads=4)
rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
if rank == 0:
    times = []
    for i in range(2200):
        begin = time.perf_counter()
        rpc.rpc_sync("w1", nothing, args=())
        if i >= 200:
            times.append(time.perf_counter() - begin)
    print(statistics.median(times) * 1e6)
rpc.shutdown()
"""


def run_peer(how):
    import tempfile
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        script = os.path.join(folder, "peer.py")
        with open(script, "w") as out:
            out.write(PEER)
        command = [sys.executable, script]
        ranks = [subprocess.Popen(command + [str(r), how, os.path.join(folder, "store")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for r in (0, 1)]
        said = [r.communicate(timeout=120) for r in ranks]
        if any(r.returncode for r in ranks):
            sys.exit("the peer failed:\n" + "\n".join(err for _, err in said))
        return float(said[0][0].split()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    args = p.parse_args()
    how = None

    def pair():
        nonlocal how
        with load_of.Load() as ours:
            asleep, spinning, tcp = map(float, subprocess.run([os.path.join(args.build, "bench", "rpc"), "empty"], check=True,
                                                              stdout=subprocess.PIPE, text=True, timeout=120).stdout.split())
        if how is None:
            both = {h: run_peer(h) for h in ("unpinned", "pinned")}
            how = min(both, key=both.get)
        with load_of.Load() as peer:
            theirs = run_peer(how)
        return {"asleep": asleep, "spinning": spinning, "tcp": tcp, "peer": theirs}, max(ours.foreign, peer.foreign)

    kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    middle = {key: statistics.median(k[key] for k in kept) for key in kept[0]}
    ratios = {key: sorted(k["peer"] / k[key] for k in kept) for key in ("asleep", "spinning", "tcp")}
    print(f"an empty call, µs: ours asleep {middle['asleep']:.1f}, spinning {middle['spinning']:.1f}, over TCP {middle['tcp']:.1f}; "
          f"torch's agent ({how}) {middle['peer']:.1f}")
    for key, each in ratios.items():
        print(f"  {key}: {statistics.median(each):.1f} × faster [{each[0]:.1f}, {each[-1]:.1f}], wanted {WANTED}")
    print(f"foreign load {100 * foreign:.1f} % ({thrown} pairs thrown away)")


main()
