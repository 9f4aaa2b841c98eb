# SPDX-License-Identifier: Apache-2.0
"""Writes part-v1.bin, held-v1.bin and staged-v1.bin, made by docs/control_protocol.md and the layout in
base/encoding.h alone: a conversation in which a launcher gets a part of three bytes from another, and what launchers
say in the job's store of parts that they hold, and of copies that they have made for the next node."""
import hashlib
import hmac
import pathlib
import struct

SECRET, JOB = b"0123456789abcdef0123456789abcdef", b"job"
PART, XXH3_OF_PART = b"abc", 0x78AF5F94892F3950
HERE = pathlib.Path(__file__).parent


def string(text):
    return struct.pack("<I", len(text)) + text


def frame(kind, payload):
    return b"TRIR" + struct.pack("<HHI", 3, kind, len(payload)) + payload


def mac(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def text(value):
    return struct.pack("<Q", len(value)) + value


def encoded(kind, value):
    return b"TRob" + struct.pack("<HHI", 1, 0, len(kind)) + kind + struct.pack("<Q", len(value)) + value


hello = frame(1, b"\1" + string(JOB) + b"c" * 32)
challenge = frame(2, b"\1" + b"s" * 32 + struct.pack("<H", 29501))
said = string(b"trireme control 3") + string(hello) + string(challenge)
extracted = mac(hashlib.sha256(said).digest(), SECRET)


def expand(label):
    return mac(extracted, label + b"\1")


def seal(key, number, bare):
    first = mac(key, struct.pack("<QB", number, 0) + bare[:12])[:16]
    last = mac(key, struct.pack("<QB", number, 1) + bare)[:16]
    return bare[:12] + first + bare[12:] + last


wanted = frame(96, encoded(b"<str,i64>", text(b"save") + struct.pack("<q", 3)))
answers = [frame(97, encoded(b"<u64,str>", struct.pack("<Q", len(PART)) + text(b""))), frame(98, PART),
           frame(99, encoded(b"<u64>", struct.pack("<Q", XXH3_OF_PART)))]
conversation = [hello, challenge, frame(3, expand(b"client proof")), frame(4, expand(b"server proof")),
                seal(expand(b"client seal"), 0, wanted)]
conversation += [seal(expand(b"server seal"), n, answer) for n, answer in enumerate(answers)]
(HERE / "part-v1.bin").write_bytes(b"".join(conversation))

parts = [(b"/run", b"save", 8, 0, 2, 4096, True), (b"/run", b"save", 8, 1, 2, 8192, False)]
held = struct.pack("<qQ", 5, len(parts))
for run_dir, save, step, rank, world, size, behind in parts:
    held += text(run_dir) + text(save) + struct.pack("<qqqQ?", step, rank, world, size, behind)
held += text(b"10.0.0.1:4711") + struct.pack("<Q", 1 << 30)
(HERE / "held-v1.bin").write_bytes(encoded(b"<i64,[<str,str,i64,i64,i64,u64,bool>],str,u64>", held))

staged = text(b"") + text(b"10.0.0.1:4711") + struct.pack("<QqQqQ", 2, 0, 4096, 1, 8192)
(HERE / "staged-v1.bin").write_bytes(encoded(b"<str,str,[(i64,u64)]>", staged))
