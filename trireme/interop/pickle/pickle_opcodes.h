// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::interop {

/// The opcodes of pickle that torch's files use (Python's pickletools.py describes them all).
enum class Opcode : uint8_t {
  proto = 0x80,
  frame = 0x95,
  stop = '.',
  mark = '(',
  none = 'N',
  newtrue = 0x88,
  newfalse = 0x89,
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  long1 = 0x8a,
  binfloat = 'G',
  binunicode = 'X',
  short_binunicode = 0x8c,
  binunicode8 = 0x8d,
  binstring = 'T',
  short_binstring = 'U',
  binbytes = 'B',
  short_binbytes = 'C',
  binbytes8 = 0x8e,
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_list = ']',
  append = 'a',
  appends = 'e',
  empty_dict = '}',
  setitem = 's',
  setitems = 'u',
  global = 'c',
  stack_global = 0x93,
  inst = 'i',
  obj = 'o',
  reduce = 'R',
  newobj = 0x81,
  newobj_ex = 0x92,
  ext1 = 0x82,
  ext2 = 0x83,
  ext4 = 0x84,
  build = 'b',
  persid = 'P',
  binpersid = 'Q',
  binput = 'q',
  long_binput = 'r',
  memoize = 0x94,
  binget = 'h',
  long_binget = 'j',
};

}  // namespace trireme::interop
