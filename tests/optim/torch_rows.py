# SPDX-License-Identifier: Apache-2.0
"""Writes torch_rows.json: what torch.optim.SparseAdam and torch.optim.Adagrad make of a table whose
gradients are sparse, step by step. row_formulas_test.cc reads it. Needs python3-torch (1.13); run
it in this folder."""
import json

import torch


def follow(name, make, steps=9, rows=7, width=3):
    torch.manual_seed(len(name))
    table = torch.nn.Parameter(torch.randn(rows, width, dtype=torch.float64))
    optimizer = make([table])
    run = {"name": name, "start": table.tolist(), "steps": []}
    for step in range(steps):
        touched = torch.nonzero(torch.rand(rows) < 0.5).flatten()
        gradients = torch.randn(len(touched), width, dtype=torch.float64)
        table.grad = torch.sparse_coo_tensor(touched[None], gradients, table.shape).coalesce()
        optimizer.step()
        run["steps"].append({"rows": touched.tolist(), "gradients": gradients.flatten().tolist(),
                             "table": table.flatten().tolist()})
    return run


if __name__ == "__main__":
    runs = [
        follow("sparse_adam", lambda p: torch.optim.SparseAdam(p, lr=0.01)),
        follow("sparse_adam_betas", lambda p: torch.optim.SparseAdam(p, lr=0.05, betas=(0.8, 0.95))),
        follow("adagrad", lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05,
                                                        initial_accumulator_value=0.3)),
    ]
    with open("torch_rows.json", "w", encoding="utf-8") as file:
        json.dump(runs, file, separators=(",", ":"))
        file.write("\n")
