#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what PyTorch for Python writes, for the tests of trireme/interop: files of torch.save and torch.jit.save and
a folder of torch.distributed.checkpoint, each with a .json that tells its tensors (dtype, shape, bytes in hex) and its
plain values. tests/interop/fixtures has what this wrote with python3-torch 1.13.1; the tests run it again where that
is installed. Usage: make_fixtures.py FOLDER; exits with 77 without PyTorch."""
import collections
import dataclasses
import functools
import json
import os
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


def described(tensor):
    plain = tensor.detach().contiguous().flatten()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    return {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "hex": plain.numpy().tobytes().hex()}


def walk(value, name, out):
    if isinstance(value, torch.Tensor):
        out["tensors"][name] = described(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            walk(item, f"{name}.{key}" if name else str(key), out)
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for i, item in enumerate(value):
            walk(item, f"{name}.{i}" if name else str(i), out)
    else:
        out["values"][name or "value"] = value


def tell(path, value):
    out = {"tensors": {}, "values": {}}
    walk(value, "", out)
    if isinstance(value, torch.Tensor):
        out["tensors"] = {"value": described(value)}
    with open(path, "w") as file:
        json.dump(out, file, indent=1, sort_keys=True)
        file.write("\n")


def save(path, value):
    torch.save(value, path + ".pt")
    tell(path + ".json", value)


def every_dtype():
    values = collections.OrderedDict()
    for dtype, name in NAMES.items():
        values[name] = torch.arange(6).view(2, 3).to(dtype)
        values[name + "_scalar"] = torch.ones((), dtype=dtype)
        values[name + "_empty"] = torch.zeros((0, 4), dtype=dtype)
    return values


def views():
    base = torch.arange(24, dtype=torch.float32).view(4, 6)
    tied = torch.nn.Parameter(torch.arange(4.0))
    return {
        "base": base, "row": base[2], "column": base[:, 1], "corner": base[1:3, 2:5], "transposed": base.t(),
        "every_other": base[::2, ::3], "nothing": base[1:1], "in": {"embedding": tied}, "out": [tied, (base, tied)],
    }


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 5, 5])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
        "step": 3, "loss": 0.25, "large": 1 << 40, "negative": -5, "note": "π is not 3", "nothing": None, "done": False,
    }


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.sizes = [1, 2, 3]

    def forward(self, x):
        return self.norm(self.fc(x))


def module_values(module):
    out = dict(module.state_dict())
    return out


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


def dcp_rank(rank, world, folder, store):
    old_dataclasses()
    import torch.distributed as dist
    from torch.distributed._shard import checkpoint
    from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    whole = torch.arange(15, dtype=torch.float32).view(5, 3)
    begin, end = (0, 3) if rank == 0 else (3, 5)
    shard = Shard.from_tensor_and_offsets(whole[begin:end].clone(), [begin, 0], rank)
    values = {
        "model.fc.weight": init_from_local_shards([shard], 5, 3),
        "model.fc.bias": torch.ones(3, dtype=torch.bfloat16),
        "model.turned": torch.arange(6.0).view(2, 3).t(),
        "step": torch.tensor(3),
        "lr": 0.125,
        "betas": (0.9, 0.999),
    }
    checkpoint.save_state_dict(values, checkpoint.FileSystemWriter(folder, single_file_per_rank=True))
    if rank == 0:
        told = dict(values)
        told["model.fc.weight"] = whole
        tell(os.path.join(os.path.dirname(folder), "dcp.json"), told)
    dist.barrier()
    dist.destroy_process_group()


def dcp(folder):
    if not torch.distributed.is_available():
        return
    import torch.multiprocessing as processes
    store = os.path.join(folder, "rendezvous")
    processes.start_processes(dcp_rank, args=(2, os.path.join(folder, "dcp"), store), nprocs=2, start_method="spawn")
    if os.path.exists(store):
        os.unlink(store)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    at = functools.partial(os.path.join, folder)
    save(at("every_dtype"), every_dtype())
    save(at("views"), views())
    save(at("training"), training())
    save(at("single"), torch.arange(5))
    torch.save(training(), at("protocol_5.pt"), pickle_protocol=5)
    tell(at("protocol_5.json"), training())
    torch.save({"w": torch.ones(2)}, at("old.pt"), _use_new_zipfile_serialization=False)
    module = Net()
    torch.jit.script(module).save(at("script.pt"))
    tell(at("script.json"), module_values(module))
    dcp(folder)


if __name__ == "__main__":
    main(sys.argv[1])
