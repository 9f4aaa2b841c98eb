#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's powerSGD_hook over given gradients, as two ranks on Gloo: power_sgd_peer.py FOLDER.

FOLDER/job.json: shapes, rounds, rank, start, rate. FOLDER/gradients: float32, [rounds][2 ranks][parameters].
FOLDER/factors: the first Q of each matrix that is compressed, in order, as [rank, columns]. Writes FOLDER/means:
[rounds][parameters]. Exits 77 where there is no torch for this Python.
"""
import json
import os
import socket
import sys

try:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(77)


class Net(torch.nn.Module):
    """Its gradients are what it is given."""

    def __init__(self, shapes):
        super().__init__()
        self.p = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(s)) for s in shapes])

    def forward(self, gradients):
        return sum((p * g).sum() for p, g in zip(self.p, gradients))


def run(rank, port, folder):
    job = json.load(open(os.path.join(folder, "job.json")))
    shapes, low = [tuple(s) for s in job["shapes"]], job["rank"]
    sizes = [int(np.prod(s)) for s in shapes]
    given = np.fromfile(os.path.join(folder, "gradients"), np.float32).reshape(job["rounds"], 2, sum(sizes))
    factors, at = {}, 0
    flat = np.fromfile(os.path.join(folder, "factors"), np.float32)
    for s, size in zip(shapes, sizes):
        n, m = s[0], size // s[0]
        if len(s) > 1 and (n + m) * low * job["rate"] < n * m:
            factors[s] = torch.from_numpy(flat[at:at + low * m].reshape(low, m).T.copy())
            at += low * m
    assert at == len(flat), "the two sides compress different matrices"

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    net = Net(shapes)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    state = power.PowerSGDState(None, matrix_approximation_rank=low, start_powerSGD_iter=job["start"],
                                min_compression_rate=job["rate"])

    def hook(state, bucket):
        if state.iter >= job["start"] and bucket.index() not in state.q_memory_dict:
            inside = [factors[tuple(g.shape)] for g in bucket.gradients() if tuple(g.shape) in factors]
            rows = sum(low * g.shape[0] for g in bucket.gradients() if tuple(g.shape) in factors)
            state.p_memory_dict[bucket.index()] = torch.empty(rows)
            state.q_memory_dict[bucket.index()] = torch.cat([q.reshape(-1) for q in inside] or [torch.empty(0)])
        return power.powerSGD_hook(state, bucket)

    ddp.register_comm_hook(state, hook)
    means = []
    for i in range(job["rounds"]):
        net.zero_grad()
        parts = torch.from_numpy(given[i, rank]).split(sizes)
        ddp([g.reshape(s) for g, s in zip(parts, shapes)]).backward()
        means.append(torch.cat([p.grad.reshape(-1) for p in net.p]).numpy().copy())
    if rank == 0:
        np.stack(means).tofile(os.path.join(folder, "means"))
    dist.barrier()


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    other = os.fork()  # after the imports, which take most of the time
    if other == 0:
        status = 1
        try:
            run(1, port, sys.argv[1])
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    run(0, port, sys.argv[1])
    return os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
