# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files with nothing but torch: Debian 12 has no python3-safetensors.

Layout: 8 bytes, little endian, the length of the header; the header, a JSON object that gives each tensor's dtype,
shape and [begin, end) in what follows; the tensors' bytes.
"""
import json
import struct

import torch

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MOST_HEADER = 100 << 20


def load(path):
    """{name: tensor}; the tensors own their memory."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 8:
        raise ValueError(f"{path}: too short for a safetensors file")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(MOST_HEADER, len(data) - 8):
        raise ValueError(f"{path}: the header claims {length} bytes, the file has {len(data) - 8} after its length")
    header = json.loads(data[8:8 + length].decode("utf-8"))
    base = 8 + length
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
        begin, end = entry["data_offsets"]
        count = 1
        for size in shape:
            count *= size
        size = count * torch.empty(0, dtype=dtype).element_size()
        if not 0 <= begin <= end <= len(data) - base or end - begin != size:
            raise ValueError(f"{path}: {name} is not where the header says")
        if count == 0:
            tensors[name] = torch.empty(shape, dtype=dtype)
        else:
            block = bytearray(data[base + begin:base + end])
            tensors[name] = torch.frombuffer(block, dtype=dtype).reshape(shape)
    return tensors


def save(path, tensors, metadata=None):
    header, blocks, at = {}, [], 0
    if metadata:
        header["__metadata__"] = {str(key): str(value) for key, value in metadata.items()}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous().cpu()
        block = bytes(tensor.view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, at + len(block)]}
        blocks.append(block)
        at += len(block)
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for block in blocks:
            file.write(block)
