#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_schedulers.json: what torch.optim.lr_scheduler gives, step by step, for the settings
below. torch_schedulers_test.cc reads it. Needs python3-torch (1.13); run it in this folder."""
import json
import math

import torch

ADAM, SGD = "Adam", "SGD"


def optimizer(kind, lrs):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    if kind == ADAM:
        return torch.optim.Adam(groups, lr=1, betas=(0.9, 0.98))
    return torch.optim.SGD(groups, lr=1, momentum=0.5)


def make(spec, optim):
    kind, args = spec["type"], dict(spec.get("args", {}))
    names = torch.optim.lr_scheduler
    if kind == "LambdaLR":
        return names.LambdaLR(optim, lambda s: 1 / (1 + s))
    if kind == "MultiplicativeLR":
        return names.MultiplicativeLR(optim, lambda s: 0.9 + 0.01 * s)
    if kind == "SequentialLR":
        return names.SequentialLR(optim, [make(s, optim) for s in spec["of"]], spec["milestones"])
    if kind == "ChainedScheduler":
        return names.ChainedScheduler([make(s, optim) for s in spec["of"]])
    if args.pop("scale_fn", None):
        args["scale_fn"] = lambda x: 0.5 * (1 + math.sin(x * math.pi / 2))
    return getattr(names, kind)(optim, **args)


def momenta(optim):
    return [g["betas"][0] if "betas" in g else g["momentum"] for g in optim.param_groups]


def run(spec, steps, lrs=(0.1,), kind=SGD):
    optim = optimizer(kind, lrs)
    schedule = make(spec, optim)
    rates, momentum = [], []
    for i in range(steps + 1):
        rates.append([g["lr"] for g in optim.param_groups])
        momentum.append(momenta(optim))
        if i < steps:
            optim.step()
            schedule.step()
    return {"spec": spec, "steps": steps, "lrs": list(lrs), "optimizer": kind, "rates": rates,
            "momentum": momentum}


def s(type, **args):
    return {"type": type, "args": args}


def cases():
    for lrs in ((0.1,), (0.3, 0.02)):
        for size, gamma in ((1, 0.5), (3, 0.1), (7, 0.9), (100, 0.1), (4, 1.5)):
            yield run(s("StepLR", step_size=size, gamma=gamma), 25, lrs)
        for stones, gamma in (([5], 0.1), ([2, 9, 10], 0.3), ([4, 4, 8], 0.5), ([0, 3], 0.5), ([], 0.1)):
            yield run(s("MultiStepLR", milestones=stones, gamma=gamma), 15, lrs)
        for gamma in (0.5, 0.95, 1.0, 1.1):
            yield run(s("ExponentialLR", gamma=gamma), 20, lrs)
        for factor, total in ((1 / 3, 5), (0.5, 1), (0.1, 12), (1.0, 3)):
            yield run(s("ConstantLR", factor=factor, total_iters=total), 15, lrs)
        for start, end, total in ((1 / 3, 1.0, 5), (0.01, 1.0, 10), (1.0, 0.1, 8), (0.5, 0.5, 4)):
            yield run(s("LinearLR", start_factor=start, end_factor=end, total_iters=total), 15, lrs)
        for total, power in ((5, 1.0), (10, 2.0), (7, 0.5)):
            yield run(s("PolynomialLR", total_iters=total, power=power), 12, lrs)
        for period, least in ((10, 0), (7, 0.001), (1, 0), (4, 0.05)):
            yield run(s("CosineAnnealingLR", T_max=period, eta_min=least), 35, lrs)
        for first, times, least in ((10, 1, 0), (3, 2, 0.001), (1, 1, 0), (5, 3, 0), (1, 2, 0.01)):
            yield run(s("CosineAnnealingWarmRestarts", T_0=first, T_mult=times, eta_min=least), 60, lrs)
        yield run(s("LambdaLR"), 10, lrs)
        yield run(s("MultiplicativeLR"), 10, lrs)
    for kind in (SGD, ADAM):
        for total, start in ((20, 0.3), (37, 0.25), (10, 0.45), (5, 0.5), (30, 0.05), (12, 0.0)):
            for strategy in ("cos", "linear"):
                for three in (False, True):
                    if three and start > 0.5:
                        continue
                    yield run(s("OneCycleLR", max_lr=0.5, total_steps=total, pct_start=start,
                                anneal_strategy=strategy, three_phase=three), total, (0.1,), kind)
    yield run(s("OneCycleLR", max_lr=[0.5, 0.05], epochs=3, steps_per_epoch=7, div_factor=10.0,
                final_div_factor=100.0, base_momentum=[0.7, 0.6], max_momentum=[0.9, 0.95]), 21, (0.1, 0.2))
    yield run(s("OneCycleLR", max_lr=0.5, total_steps=11, cycle_momentum=False), 11, (0.1, 0.2), ADAM)
    for up, down in ((5, None), (3, 7), (1, 1), (10, 2)):
        for mode, gamma in (("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.95)):
            yield run(s("CyclicLR", base_lr=0.01, max_lr=0.2, step_size_up=up, step_size_down=down,
                        mode=mode, gamma=gamma), 33)
    yield run(s("CyclicLR", base_lr=[0.01, 0.02], max_lr=[0.2, 0.1], step_size_up=4,
                base_momentum=[0.6, 0.7], max_momentum=[0.9, 0.8]), 20, (0.1, 0.2))
    yield run(s("CyclicLR", base_lr=0.01, max_lr=0.2, step_size_up=4, cycle_momentum=False), 20, (0.1,), ADAM)
    for scale_mode in ("cycle", "iterations"):
        yield run(s("CyclicLR", base_lr=0.01, max_lr=0.2, step_size_up=4, scale_fn=True,
                    scale_mode=scale_mode), 20)
    exp, const = s("ExponentialLR", gamma=0.9), s("ConstantLR", factor=0.1, total_iters=4)
    linear, cosine = s("LinearLR", start_factor=0.01, total_iters=5), s("CosineAnnealingLR", T_max=10)
    for of, stones in (([const, exp], [4]), ([linear, cosine], [5]), ([linear, exp, cosine], [5, 9]),
                       ([s("StepLR", step_size=2, gamma=0.5), linear], [6]),
                       ([linear, s("MultiStepLR", milestones=[0, 3], gamma=0.5)], [5]),
                       ([linear, s("CosineAnnealingWarmRestarts", T_0=4, T_mult=2)], [5]),
                       ([exp, s("PolynomialLR", total_iters=6)], [3]),
                       ([s("MultiplicativeLR"), s("LambdaLR")], [3]),
                       ([s("LambdaLR"), s("MultiplicativeLR")], [3]),
                       ([linear, s("CyclicLR", base_lr=0.01, max_lr=0.2, step_size_up=3)], [5]),
                       ([linear, s("OneCycleLR", max_lr=0.5, total_steps=30)], [5])):
        for lrs in ((0.1,), (0.3, 0.02)):
            yield run({"type": "SequentialLR", "of": of, "milestones": stones}, 20, lrs)
    for of in ([const, exp], [linear, exp], [linear, cosine],
               [s("StepLR", step_size=3, gamma=0.5), s("MultiStepLR", milestones=[4, 7], gamma=0.1), exp],
               [{"type": "SequentialLR", "of": [linear, exp], "milestones": [5]}, const]):
        for lrs in ((0.1,), (0.3, 0.02)):
            yield run({"type": "ChainedScheduler", "of": of}, 20, lrs)


def line(case):
    return json.dumps(case, separators=(",", ":"))


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    with open("torch_schedulers.json", "w") as f:
        f.write('{"torch":"%s","cases":[\n' % torch.__version__)
        f.write(",\n".join(line(c) for c in cases()))
        f.write("\n]}\n")
