#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random scores and labels with their average precision as scikit-learn's average_precision_score defines it, by numpy:
average_precision.py SEED COUNT writes a line {"scores", "right", "precision"} each. Where scikit-learn is installed its own value
must be the same."""
import json
import sys

import numpy as np

try:
    from sklearn.metrics import average_precision_score
except ImportError:
    average_precision_score = None


def average_precision(right, scores):
    """sum over thresholds of (recall_n - recall_{n-1}) precision_n: sklearn.metrics._ranking, from its description."""
    order = np.argsort(scores, kind="mergesort")[::-1]
    scores, right = scores[order], right[order]
    last = np.r_[np.where(np.diff(scores))[0], right.size - 1]  # of each different score
    found = np.cumsum(right, dtype=np.float64)[last]
    precision, recall = found / (1 + last), found / found[-1]
    return float(np.sum(np.diff(np.r_[0, recall]) * precision))


random = np.random.default_rng(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    n = int(random.integers(1, 60))
    right = random.random(n) < random.random()
    right[random.integers(n)] = True
    scores = random.random(n).astype(np.float32)
    if random.random() < 0.5:
        scores = (np.round(scores * 8) / 8).astype(np.float32)  # many are equal
    value = average_precision(right, scores)
    if average_precision_score is not None:
        assert abs(average_precision_score(right, scores) - value) < 1e-12
    print(json.dumps({"scores": [float(x) for x in scores], "right": [bool(x) for x in right], "precision": value}))
