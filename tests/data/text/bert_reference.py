#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The published algorithm of BERT's tokenizer over random texts: bert_reference.py FOLDER SEED COUNT
writes FOLDER/vocab.txt and FOLDER/texts.jsonl, a line {"text", "pieces": {option: [piece, ...]}} each.
Written from the description of google-research/bert, with this Python's unicodedata."""
import json
import random
import sys
import unicodedata

OPTIONS = {  # lower_case, strip_accents (None: as lower_case), split_cjk
    "uncased": (True, None, True),
    "cased": (False, None, True),
    "lower with accents": (True, False, True),
    "cased without accents": (False, True, True),
    "without cjk": (True, None, False),
}


def is_space(c):
    return c in " \t\n\r" or unicodedata.category(c) == "Zs"


def is_control(c):
    return c not in "\t\n\r" and unicodedata.category(c).startswith("C")


def is_punctuation(c):
    code = ord(c)
    ascii_sign = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_sign or unicodedata.category(c).startswith("P")


def is_cjk(c):
    blocks = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
    return any(first <= ord(c) <= last for first, last in blocks)


def basic(text, lower, strip, cjk):
    text = "".join(" " if is_space(c) else c for c in text if c not in "\0\ufffd" and not is_control(c))
    if cjk:
        text = "".join(f" {c} " if is_cjk(c) else c for c in text)
    words = []
    for word in text.split():
        if lower:
            word = word.lower()
        if strip or (strip is None and lower):
            word = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
        words.append("".join(f" {c} " if is_punctuation(c) else c for c in word))
    return " ".join(words).split()


def word_pieces(word, vocabulary):
    if len(word) > 100:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def characters(rng):
    """The alphabet of one text."""
    kind = rng.randrange(9)
    if kind == 0:
        return [chr(c) for c in range(0x20, 0x7F)]
    if kind == 1:
        return list("abcdeABCDE éÉüÜñçßİıſKÅΩ.,'-()\u00ad\u200b\u00a0\t\n")
    if kind == 2:
        return list("αβγσΣςΑΒΓάΆ .'·:a\u0301\u00adª")
    if kind == 3:
        return [chr(rng.randrange(0x300, 0x370)) for _ in range(8)] + list("aeiouAEIOU \u1d165")
    if kind == 4:
        return [chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(9)] + list("ab 。、・\uff21\u3000") + ["\uf900", "\U0002f800"]
    if kind == 5:
        return [chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(9)] + list(" \u1100\u1161a")
    if kind == 6:
        return [chr(rng.randrange(0x0, 0x20)) for _ in range(6)] + list("ab  \u0085\u2028\u2029\ufffd\x7f\x1c")
    found = []
    while len(found) < 30:  # anywhere
        c = chr(rng.randrange(0x110000 if kind == 7 else 0x3000))
        if not 0xD800 <= ord(c) <= 0xDFFF:
            found.append(c)
    return found + list("  ab")


def main():
    folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        alphabet = characters(rng)
        length = rng.choice((3, 10, 40, 40, 130))
        texts.append("".join(rng.choice(alphabet) for _ in range(length)))
    texts += ["", " ", "a" * 100, "a" * 101, "é" * 100, "[CLS] [SEP] [PAD]", "unaffable", "##a a##", "a" * 99 + "\u0301" * 50]
    every = {word for text in texts for option in OPTIONS.values() for word in basic(text, *option)}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "##"]
    seen = set(vocabulary)
    for word in sorted(every):
        for _ in range(2):
            start = rng.randrange(len(word))
            for begin in {start, 0}:
                piece = ("##" if begin else "") + word[begin:begin + rng.choice((1, 1, 1, 2, 3, 5))]
                if piece not in seen:
                    seen.add(piece)
                    vocabulary.append(piece)
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8", newline="\n") as out:
        out.write("\n".join(vocabulary) + "\n")
    with open(f"{folder}/texts.jsonl", "w", encoding="utf-8") as out:
        for text in texts:
            pieces = {name: [piece for word in basic(text, *option) for piece in word_pieces(word, seen)]
                      for name, option in OPTIONS.items()}
            out.write(json.dumps({"text": text, "pieces": pieces}) + "\n")
    print(unicodedata.unidata_version, end="")


main()
