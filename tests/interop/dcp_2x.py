#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint of PyTorch 2.8 and later, both ways. Usage:
  dcp_2x.py read FOLDER OUT.json   reads a folder of sharded safetensors (a step of ours, say) with
                                   HuggingFaceStorageReader, and tells its tensors
  dcp_2x.py make FOLDER            FOLDER/dcp_2x (.metadata, *.distcp), FOLDER/dcp_hf (sharded safetensors), both of two
                                   ranks, and FOLDER/dcp_2x.json, which tells their tensors
tests/interop/fixtures has what "make" wrote with the PyTorch that dcp_2x.json names. Exits with 77, and says why, where
that cannot be done here."""
import json
import os
import sys


def unable(why):
    print(why)
    sys.exit(77)


try:
    import torch
except ImportError:
    unable("python3-torch is not installed")
try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
except ImportError as error:
    unable(f"PyTorch {torch.__version__} has no HuggingFaceStorageReader, which 2.8 and later have with "
           f"python3-safetensors and python3-fsspec: {error}")
try:
    import safetensors  # noqa: F401, which the reader asks for
except ImportError:
    unable("python3-safetensors is not installed")

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


def told(tensors):
    out = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor
        raw = bytes(plain.tolist()) if tensor.numel() else b""
        out[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "hex": raw.hex()}
    return out


def write_json(path, tensors):
    with open(path, "w") as file:
        json.dump({"torch": torch.__version__, "tensors": told(tensors)}, file, indent=1, sort_keys=True)
        file.write("\n")


def read(folder, out):
    described = HuggingFaceStorageReader(path=folder).read_metadata().state_dict_metadata
    state = {name: torch.empty(t.size, dtype=t.properties.dtype) for name, t in described.items()}
    for tensor in state.values():
        tensor.view(-1).view(torch.uint8).fill_(0x5A) if tensor.numel() and tensor.dtype != torch.bool else None
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path=folder), no_dist=True)
    write_json(out, state)


def rank_main(rank, world, folder):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    whole = {
        "model.fc.weight": torch.arange(15, dtype=torch.float32).view(5, 3),
        "model.out.weight": torch.arange(8, dtype=torch.float64).view(2, 4),
        "model.fc.bias": torch.ones(3, dtype=torch.bfloat16),
        "seen": torch.tensor(7),
    }
    def split(tensor, dim):  # without a message: Gloo has none for bfloat16
        local = tensor if dim is None else tensor.chunk(world, dim)[rank].contiguous()
        return DTensor.from_local(local, mesh, [Replicate() if dim is None else Shard(dim)], run_check=False,
                                  shape=tensor.shape, stride=tensor.stride())

    placed = {
        "model.fc.weight": split(whole["model.fc.weight"], 0),
        "model.out.weight": split(whole["model.out.weight"], 1),
        "model.fc.bias": split(whole["model.fc.bias"], None),
        "seen": whole["seen"],
    }
    # What is no tensor goes into the kind of folder that takes it.
    dcp.save({**placed, "lr": 0.125}, checkpoint_id=os.path.join(folder, "dcp_2x"))
    hf = os.path.join(folder, "dcp_hf")
    try:
        writer = HuggingFaceStorageWriter(path=hf, save_distributed=True)
    except TypeError:  # 2.8's name for it
        writer = HuggingFaceStorageWriter(path=hf, save_sharded=True)
    dcp.save(placed, storage_writer=writer)
    if rank == 0:
        write_json(os.path.join(folder, "dcp_2x.json"), whole)
    dist.barrier()
    dist.destroy_process_group()


def make(folder):
    import torch.multiprocessing as processes
    os.makedirs(folder, exist_ok=True)
    processes.start_processes(rank_main, args=(2, folder), nprocs=2, start_method="spawn")
    rendezvous = os.path.join(folder, "rendezvous")
    if os.path.exists(rendezvous):
        os.unlink(rendezvous)


if __name__ == "__main__":
    read(*sys.argv[2:]) if sys.argv[1] == "read" else make(*sys.argv[2:])
