#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What SQuAD's two evaluation scripts compute, over random answers: a line
{"prediction", "answers", "normalized", "exact", "f1", "exact_v1", "f1_v1"} each. Arguments: SEED COUNT."""
import collections
import json
import random
import re
import string
import sys


def normalized(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1_of(right, predicted, empty_agree):
    right, predicted = normalized(right).split(), normalized(predicted).split()
    if empty_agree and (not right or not predicted):
        return float(right == predicted)
    same = sum((collections.Counter(predicted) & collections.Counter(right)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall)


def best(function, answers):
    return max(function(answer) for answer in answers)


def main():
    rng = random.Random(int(sys.argv[1]))
    words = ["a", "an", "the", "The", "A", "An", "theory", "banana", "U.S.", "1,000", "a-b", "the,", "Ǆ", "İstanbul",
             "ΟΔΟΣ", "Σ", "ΑΣ'Σ", "a\u0301", "\u00e4", "the\u00a0end", "x_a", "a_", "…", "¿", "«a»", "-", "'", "\u2003", "\x1f",
             "\x85", "中", "the中", "٣", "ª", "ﬁ", "\u200b", "a\u200bb", "₂", "½"]

    def text():
        return "".join(rng.choice(words) + rng.choice((" ", " ", "  ", "", "\t", "\n")) for _ in range(rng.choice((0, 1, 1, 2, 3, 6))))

    for _ in range(int(sys.argv[2])):
        answers = [text() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        prediction = text() if not answers or rng.random() < 0.5 else rng.choice(answers).upper()
        right = [a for a in answers if normalized(a)] or [""]
        told = {"prediction": prediction, "answers": answers, "normalized": normalized(prediction),
                "exact": best(lambda a: float(normalized(a) == normalized(prediction)), right),
                "f1": best(lambda a: f1_of(a, prediction, True), right)}
        if answers:
            told["exact_v1"] = best(lambda a: float(normalized(a) == normalized(prediction)), answers)
            told["f1_v1"] = best(lambda a: f1_of(a, prediction, False), answers)
        print(json.dumps(told))


main()
