# SPDX-License-Identifier: Apache-2.0
"""Writes places-v1.bin, made by docs/control_protocol.md and the layout in base/encoding.h alone: what the launchers of
three workers say in the job's store of who trains together. Worker 1 was lost, and then the one in its place; the
third one there is ready and not taken in yet."""
import pathlib
import struct


def encoded(kind, value):
    return b"TRob" + struct.pack("<HHI", 1, 0, len(kind)) + kind + struct.pack("<Q", len(value)) + value


places = struct.pack("<Q", 3)
for number, trains, ready in [(0, True, True), (7, False, True), (2, True, True)]:
    places += struct.pack("<q??", number, trains, ready)
known = encoded(b"<[<i64,bool,bool>],bool,i32>", places + struct.pack("<?i", False, 2))
newest = struct.pack("<qQqqq", 1, 2, 0, 2, 0) + struct.pack("<Q", len(known)) + known
(pathlib.Path(__file__).parent / "places-v1.bin").write_bytes(encoded(b"<i64,[i64],i64,str>", newest))
