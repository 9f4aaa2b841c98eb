#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Saving and loading: ours against torch.save / torch.load, and against PyTorch's distributed checkpoint on two Gloo ranks.

  bench/checkpoint_vs_torch.py [--mib 1024] [--pairs 5] [--build build/release] [--folder DIR] [--json FILE]

The same state for both: float32 tensors of 16 MiB. Against torch.save one rank holds it; against torch.distributed.checkpoint two ranks hold
half of each tensor (ours as ZeRO-3 has it, theirs as ShardedTensors, FileSystemWriter with one file per rank and with fsync), and once more
all of it. Saves end with fsync on both sides; ours writes and compares checksums, theirs have none. Files are dropped from the page cache
before they are loaded, into tensors that are there (theirs by load_state_dict and copy_). A pair runs ours and the peer one after the other;
figures are medians over pairs. CPU seconds stand beside wall and cover a whole process with its start. A pair under a foreign load above 5 %
is measured again, and where that does not help the row is void. Needs Debian's python3-torch.
"""
import argparse
import dataclasses
import functools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = COLUMNS = 2048  # 16 MiB of float32
KINDS = {  # name: (ranks, replicated)
    "torch.save": (1, True),
    "dcp sharded": (2, False),
    "dcp replicated": (2, True),
}


def make_cold(folder):
    for base, _, names in os.walk(folder):
        for name in names:
            fd = os.open(os.path.join(base, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def torch_save(mib, folder):
    import torch
    state = {f"model.blocks.{i}.weight": torch.full((ROWS, COLUMNS), 1.0 + i) for i in range(mib // 16)}
    path = os.path.join(folder, "state.pt")
    begin = time.time()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    saved = time.time() - begin
    make_cold(folder)
    for t in state.values():
        t.zero_()
    begin = time.time()
    read = torch.load(path)
    for name, t in state.items():
        t.copy_(read[name])
    loaded = time.time() - begin
    if any(t[-1, -1] != 1.0 + i for i, t in enumerate(state.values())):
        sys.exit("what torch.load gave is not what was saved")
    return saved, loaded


def old_dataclasses():
    """PyTorch 1.13's DCP has a default that Python 3.11 takes for mutable: one class needs a hash."""
    real = dataclasses.dataclass

    def patched(cls=None, **options):
        if cls is None:
            return functools.partial(patched, **options)
        if cls.__name__ == "TensorProperties":
            options["unsafe_hash"] = True
        return real(cls, **options)

    dataclasses.dataclass = patched


def dcp(mib, folder, replicated):
    old_dataclasses()
    import torch
    import torch.distributed as dist
    from torch.distributed._shard import checkpoint
    from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    rank, world = dist.get_rank(), dist.get_world_size()
    state = {}
    rows = ROWS if replicated else ROWS // world
    local = [torch.full((rows, COLUMNS), 1.0 + i) for i in range(mib // 16)]
    for i, t in enumerate(local):
        name = f"model.blocks.{i}.weight"
        state[name] = t if replicated else init_from_local_shards(
            [Shard.from_tensor_and_offsets(t, [rank * rows, 0], rank)], (ROWS, COLUMNS))
    dist.barrier()
    begin = time.time()
    checkpoint.save_state_dict(state, checkpoint.FileSystemWriter(folder, single_file_per_rank=True, sync_files=True))
    dist.barrier()
    saved = time.time() - begin
    if rank == 0:
        make_cold(folder)
    for t in local:
        t.zero_()
    dist.barrier()
    begin = time.time()
    checkpoint.load_state_dict(state, checkpoint.FileSystemReader(folder))
    dist.barrier()
    loaded = time.time() - begin
    if any(t[-1, -1] != 1.0 + i for i, t in enumerate(local)):
        sys.exit("what the distributed checkpoint gave is not what was saved")
    return (saved, loaded) if rank == 0 else None


def be_a_peer(kind, mib, folder):
    result = torch_save(mib, folder) if kind == "torch.save" else dcp(mib, folder, KINDS[kind][1])
    if result:
        print(json.dumps({"save_s": result[0], "load_s": result[1]}))


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run_ours(args, kind, folder):
    ranks, replicated = KINDS[kind]
    command = [os.path.join(args.build, "bench", "checkpoint_files"), folder, "once", str(args.mib), str(ranks),
               "replicated" if replicated else "sharded"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=args.timeout)
    if done.returncode != 0:
        sys.exit(f"ours failed ({' '.join(command)}):\n{done.stdout}{done.stderr}")
    return last_json(done.stdout)


def run_peer(args, kind, folder):
    ranks, _ = KINDS[kind]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    procs = [subprocess.Popen(["/usr/bin/python3", os.path.abspath(__file__), "--peer", kind, "--mib", str(args.mib), "--folder", folder],
                              env=dict(env, RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(ranks)]
    outs = [p.communicate(timeout=args.timeout) for p in procs]
    for p, (_, err) in zip(procs, outs):
        if p.returncode != 0:
            sys.exit(f"the peer failed:\n{err}")
    return last_json(outs[0][0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk that is measured")
    p.add_argument("--json")
    p.add_argument("--timeout", type=float, default=600)
    p.add_argument("--peer", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer:
        return be_a_peer(args.peer, args.mib, args.folder)
    out = open(args.json, "w") if args.json else None
    print(f"# {args.mib} MiB; seconds, medians of {args.pairs} alternating pairs")
    for kind in args.kinds.split(","):
        def pair():
            figures, foreign = {}, []
            for who, run in (("ours", run_ours), ("peer", run_peer)):
                folder = tempfile.mkdtemp(prefix="trireme-bench", dir=args.folder)
                try:
                    os.sync()
                    with load_of.Load() as load:
                        figures[who] = run(args, kind, folder)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                figures[who]["cpu_s"] = load.cpu
                foreign.append(load.foreign)
            return figures, max(foreign)

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
        row = {"peer": kind, "mib": args.mib, "foreign_load": foreign, "thrown_away": thrown, "void": foreign > load_of.FOREIGN}
        text = f"{kind:14}"
        for what in ("save", "load"):
            ours, peer = ([k[who][f"{what}_s"] for k in kept] for who in ("ours", "peer"))
            ratios = [b / a for a, b in zip(ours, peer)]
            row[what] = {"ours": statistics.median(ours), "peer": statistics.median(peer), "ratio": statistics.median(ratios), "ratios": ratios}
            text += (f"  {what} ours {row[what]['ours']:.2f}  peer {row[what]['peer']:.2f}  {row[what]['ratio']:.2f} x faster "
                     f"[{min(ratios):.2f}, {max(ratios):.2f}]")
        row["ours_cpu_s"], row["peer_cpu_s"] = (statistics.median(k[who]["cpu_s"] for k in kept) for who in ("ours", "peer"))
        text += f"  CPU of a run {row['ours_cpu_s']:.1f} and {row['peer_cpu_s']:.1f}  " + load_of.verdict(foreign, thrown)
        print(text, flush=True)
        if out:
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
