#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints unicode_tables.h from the Unicode data of this Python: python3 unicode_tables.py > unicode_tables.h"""
import sys
import unicodedata

SPACE, CONTROL, PUNCTUATION, MARK, CASED, IGNORABLE, WORD = 1, 2, 4, 8, 16, 32, 64


def classes(code):
    char, category = chr(code), unicodedata.category(chr(code))
    if category in ("Cn", "Co", "Cs"):  # most of them: nothing else is known of these
        return CONTROL
    found = 0
    if category == "Zs" or char in "\t\n\r\u2028\u2029":
        found |= SPACE
    if (category[0] == "C" and char not in "\t\n\r") or code == 0xFFFD:
        found |= CONTROL
    if category[0] == "P" or 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        found |= PUNCTUATION
    if category == "Mn":
        found |= MARK
    if char.isalnum() or char == "_":
        found |= WORD
    # What decides between the two small forms of a capital sigma that stands before this character.
    last, followed = ("a\u03a3" + char).lower()[1], ("a\u03a3" + char + "a").lower()[1]
    if last == "\u03c3":
        found |= CASED
    elif followed == "\u03c3":
        found |= IGNORABLE
    return found


def table(kind, name, rows):
    print(f"\ninline constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) + 2 > 128:
            print(line)
            line = "   "
        line += " " + row + ","
    print(line)
    print("};")


def ranges(function):
    """(first, value) where the value differs from that of the code before."""
    found = []
    for code in range(sys.maxunicode + 1):
        value = function(code)
        if not found or found[-1][1] != value:
            found.append((code, value))
    return found


codes = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
print(f"""// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Of Unicode {unicodedata.unidata_version}. Made by unicode_tables.py beside it; see unicode.h.
// clang-format off
namespace trireme::unicode {{

struct FromHere {{
  char32_t first;  // up to the next one's
  uint8_t value;
}};
struct Lower {{
  char32_t upper, lower;
}};
struct Decomposition {{
  char32_t whole, parts[4];  // zeros behind the last
}};""")
table("uint8_t", "kAsciiClasses", [str(classes(c)) for c in range(128)])
table("FromHere", "kClasses", [f"{{0x{c:x},{v}}}" for c, v in ranges(classes)])
table("FromHere", "kCombiningClasses", [f"{{0x{c:x},{v}}}" for c, v in ranges(lambda c: unicodedata.combining(chr(c)))])
# The one that becomes two characters is a case of its own in unicode.cc.
table("Lower", "kLower", [f"{{0x{c:x},0x{ord(chr(c).lower()):x}}}" for c in codes
                          if chr(c).lower() != chr(c) and c != 0x130])
rows = []
for c in codes:
    parts = unicodedata.normalize("NFD", chr(c))
    if parts != chr(c) and not 0xAC00 <= c <= 0xD7A3:  # syllables of Hangul are computed
        rows.append(f"{{0x{c:x},{{{','.join(f'0x{ord(p):x}' for p in parts)}}}}}")
table("Decomposition", "kDecompositions", rows)
print("\n}  // namespace trireme::unicode")
