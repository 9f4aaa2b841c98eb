// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// The learning-rate schedule. Values that the chosen type does not use are absent.
struct SchedulerSection {
  std::string type = "constant";
  std::string lr_scaling = "none";
  std::optional<int64_t> base_batch_size;
  std::optional<int64_t> warmup_num_steps = 1000;
  std::optional<int64_t> total_num_steps = 0;
  std::optional<double> min_lr_ratio = 0.1;
  std::optional<double> power = 1;
  std::optional<int64_t> decay_num_steps;
  std::optional<std::string> decay_type = "linear";
  std::optional<std::string> warmup_type = "log";
  std::optional<double> warmup_min_lr = 0;
  std::optional<double> warmup_max_lr;
  std::optional<double> warmup_min_ratio = 0;
  std::optional<double> cos_min_ratio = 0.0001;
  std::optional<double> cycle_min_lr;
  std::optional<double> cycle_max_lr;
  std::optional<int64_t> cycle_first_step_size = 2000;
  std::optional<int64_t> cycle_second_step_size;
  std::optional<double> decay_lr_rate = 0;
  std::optional<int64_t> decay_step_size = 0;
  std::optional<bool> cycle_momentum = true;
  std::optional<double> lr_range_test_min_lr = 0.001;
  std::optional<int64_t> lr_range_test_step_size = 2000;
  std::optional<double> lr_range_test_step_rate = 1;
  std::optional<bool> lr_range_test_staircase = false;
  std::optional<int64_t> step_size;
  std::optional<std::vector<double>> milestones;
  std::optional<double> gamma = 0.1;
  std::optional<int64_t> T_max;
  std::optional<int64_t> T_0;
  std::optional<int64_t> T_mult = 1;
  std::optional<double> eta_min = 0;
  std::optional<double> max_lr;
  std::optional<int64_t> total_steps = 0;
  std::optional<double> pct_start = 0.3;
  std::optional<std::string> anneal_strategy = "cos";
  std::optional<double> div_factor = 25;
  std::optional<double> final_div_factor = 10000;
  std::optional<bool> three_phase = false;
  std::optional<double> base_lr;
  std::optional<int64_t> step_size_up = 2000;
  std::optional<int64_t> step_size_down;
  std::optional<std::string> mode = "triangular";

  void fields(Fields& f) {
    const char* one_cycle = "scheduler.type=OneCycle";
    const char* range_test = "scheduler.type=LRRangeTest";
    const char* one_cycle_lr = "scheduler.type=OneCycleLR";
    const char* cyclic = "scheduler.type=CyclicLR";
    const char* cosines = "scheduler.type=CosineAnnealingLR,CosineAnnealingWarmRestarts";
    const char* restarts = "scheduler.type=CosineAnnealingWarmRestarts";
    const char* warmups = "scheduler.type=WarmupLR,WarmupDecayLR";
    const char* warmup_cosine = "scheduler.type=WarmupCosineLR";
    const char* wsd = "scheduler.type=WSD";
    f.field({.path = "scheduler.type",
             .choices = "constant linear cosine polynomial inverse_sqrt WSD WarmupLR WarmupDecayLR "
                        "WarmupCosineLR OneCycle LRRangeTest StepLR MultiStepLR ExponentialLR "
                        "CosineAnnealingLR CosineAnnealingWarmRestarts OneCycleLR CyclicLR",
             .help = "learning-rate schedule; the first six warm up linearly, and those from "
                     "StepLR on are torch's, with a step as their epoch",
             .deepspeed = true},
            type);
    f.field(
        {.path = "scheduler.lr_scaling",
         .choices = "none linear sqrt",
         .help =
             "multiplies every rate by batch / scheduler.base_batch_size, or by its square root"},
        lr_scaling);
    f.field({.path = "scheduler.base_batch_size",
             .min = 1,
             .max = f.kMany,
             .when = "scheduler.lr_scaling=linear,sqrt",
             .help = "samples per step for which the rates were found"},
            base_batch_size);
    f.field({.path = "scheduler.params.warmup_num_steps",
             .min = 0,
             .max = f.kMany,
             .when = "scheduler.type=constant,linear,cosine,polynomial,inverse_sqrt,WSD,WarmupLR,"
                     "WarmupDecayLR,WarmupCosineLR",
             .help = "steps of warm-up (default 0, except for DeepSpeed's schedules)",
             .deepspeed = true},
            warmup_num_steps);
    f.field({.path = "scheduler.params.total_num_steps",
             .min = 0,
             .max = f.kMany,
             .when = "scheduler.type=linear,cosine,polynomial,WSD,WarmupDecayLR,WarmupCosineLR",
             .help = "step at which the decay ends; 0: training.steps",
             .deepspeed = true},
            total_num_steps);
    f.field({.path = "scheduler.params.min_lr_ratio",
             .min = 0,
             .max = 1,
             .when = "scheduler.type=linear,cosine,polynomial,inverse_sqrt,WSD",
             .help = "final rate as a fraction of optimizer.params.lr (inverse_sqrt: 0)"},
            min_lr_ratio);
    f.field({.path = "scheduler.params.power",
             .min = 0,
             .max = 1000,
             .when = "scheduler.type=polynomial",
             .help = "exponent of the decay, above 0"},
            power);
    f.field({.path = "scheduler.params.decay_num_steps",
             .min = 1,
             .max = f.kMany,
             .when = wsd,
             .help = "number of last steps in which the rate decays; it is constant before"},
            decay_num_steps);
    f.field({.path = "scheduler.params.decay_type",
             .choices = "linear cosine exponential minus_sqrt",
             .when = wsd,
             .help = "shape of the decay"},
            decay_type);
    f.field({.path = "scheduler.params.warmup_type",
             .choices = "log linear",
             .when = "scheduler.type=WarmupLR,WarmupDecayLR,WarmupCosineLR",
             .help = "shape of the warm-up",
             .deepspeed = true},
            warmup_type);
    f.field({.path = "scheduler.params.warmup_min_lr",
             .min = 0,
             .when = warmups,
             .help = "learning rate at the start of the warm-up",
             .deepspeed = true},
            warmup_min_lr);
    f.field({.path = "scheduler.params.warmup_max_lr",
             .min = 0,
             .when = warmups,
             .help = "learning rate after the warm-up (WarmupLR: optimizer.params.lr; "
                     "WarmupDecayLR: 0.001)",
             .deepspeed = true},
            warmup_max_lr);
    f.field({.path = "scheduler.params.warmup_min_ratio",
             .min = 0,
             .max = 1,
             .when = warmup_cosine,
             .help = "rate at the start of the warm-up, as a fraction of optimizer.params.lr",
             .deepspeed = true},
            warmup_min_ratio);
    f.field({.path = "scheduler.params.cos_min_ratio",
             .min = 0,
             .max = 1,
             .when = warmup_cosine,
             .help = "rate at the end of the cosine, as a fraction of optimizer.params.lr",
             .deepspeed = true},
            cos_min_ratio);
    f.field({.path = "scheduler.params.cycle_min_lr",
             .min = 0,
             .when = one_cycle,
             .help = "learning rate at both ends of the cycle",
             .deepspeed = true},
            cycle_min_lr);
    f.field({.path = "scheduler.params.cycle_max_lr",
             .min = 0,
             .when = one_cycle,
             .help = "learning rate in the middle of the cycle",
             .deepspeed = true},
            cycle_max_lr);
    f.field({.path = "scheduler.params.cycle_first_step_size",
             .min = 1,
             .max = f.kMany,
             .when = one_cycle,
             .help = "steps of the rise",
             .deepspeed = true},
            cycle_first_step_size);
    f.field({.path = "scheduler.params.cycle_second_step_size",
             .min = 1,
             .max = f.kMany,
             .when = one_cycle,
             .help = "steps of the fall (default: as for the rise)",
             .deepspeed = true},
            cycle_second_step_size);
    f.field(
        {.path = "scheduler.params.decay_lr_rate",
         .min = 0,
         .when = one_cycle,
         .help = "after the cycle: cycle_min_lr / (1 + decay_lr_rate × steps / decay_step_size)",
         .deepspeed = true},
        decay_lr_rate);
    f.field({.path = "scheduler.params.decay_step_size",
             .min = 0,
             .max = f.kMany,
             .when = one_cycle,
             .help = "steps per unit of decay after the cycle; 0: no decay",
             .deepspeed = true},
            decay_step_size);
    f.field({.path = "scheduler.params.cycle_momentum",
             .when = "scheduler.type=OneCycle,OneCycleLR,CyclicLR",
             .help = "DeepSpeed and torch vary momentum against the rate; here it must be false, "
                     "which keeps momentum constant",
             .deepspeed = true},
            cycle_momentum);
    f.field({.path = "scheduler.params.lr_range_test_min_lr",
             .min = 0,
             .when = range_test,
             .help = "learning rate of the first step",
             .deepspeed = true},
            lr_range_test_min_lr);
    f.field({.path = "scheduler.params.lr_range_test_step_size",
             .min = 1,
             .max = f.kMany,
             .when = range_test,
             .help = "steps per rise",
             .deepspeed = true},
            lr_range_test_step_size);
    f.field({.path = "scheduler.params.lr_range_test_step_rate",
             .min = 0,
             .when = range_test,
             .help = "size of a rise, as a fraction of lr_range_test_min_lr",
             .deepspeed = true},
            lr_range_test_step_rate);
    f.field({.path = "scheduler.params.lr_range_test_staircase",
             .when = range_test,
             .help = "rise at the end of each step size instead of continuously",
             .deepspeed = true},
            lr_range_test_staircase);
    f.field({.path = "scheduler.params.step_size",
             .min = 1,
             .max = f.kMany,
             .when = "scheduler.type=StepLR",
             .help = "steps after which the rate is multiplied by gamma"},
            step_size);
    f.field({.path = "scheduler.params.milestones",
             .min = 0,
             .max = f.kMany,
             .when = "scheduler.type=MultiStepLR",
             .help = "steps at which the rate is multiplied by gamma"},
            milestones);
    f.field({.path = "scheduler.params.gamma",
             .min = 0,
             .when = "scheduler.type=StepLR,MultiStepLR,ExponentialLR,CyclicLR",
             .help = "factor of the rate (required for ExponentialLR; 1 by default for CyclicLR, "
                     "whose exp_range uses it)"},
            gamma);
    f.field({.path = "scheduler.params.T_max",
             .min = 1,
             .max = f.kMany,
             .when = "scheduler.type=CosineAnnealingLR",
             .help = "steps of half a cosine period"},
            T_max);
    f.field({.path = "scheduler.params.T_0",
             .min = 1,
             .max = f.kMany,
             .when = restarts,
             .help = "steps until the first restart"},
            T_0);
    f.field({.path = "scheduler.params.T_mult",
             .min = 1,
             .max = f.kMany,
             .when = restarts,
             .help = "factor by which each period is longer than the one before"},
            T_mult);
    f.field({.path = "scheduler.params.eta_min",
             .min = 0,
             .when = cosines,
             .help = "smallest learning rate"},
            eta_min);
    f.field({.path = "scheduler.params.max_lr",
             .min = 0,
             .when = "scheduler.type=OneCycleLR,CyclicLR",
             .help = "learning rate at the peak"},
            max_lr);
    f.field({.path = "scheduler.params.total_steps",
             .min = 0,
             .max = f.kMany,
             .when = one_cycle_lr,
             .help = "steps of the cycle, at least those of the run; 0: training.steps"},
            total_steps);
    f.field({.path = "scheduler.params.pct_start",
             .min = 0,
             .max = 1,
             .when = one_cycle_lr,
             .help = "fraction of the cycle in which the rate rises"},
            pct_start);
    f.field({.path = "scheduler.params.anneal_strategy",
             .choices = "cos linear",
             .when = one_cycle_lr,
             .help = "how the rate moves between the points of the cycle"},
            anneal_strategy);
    f.field({.path = "scheduler.params.div_factor",
             .min = 0,
             .max = 1e15,
             .when = one_cycle_lr,
             .help = "the cycle starts at max_lr / div_factor; above 0"},
            div_factor);
    f.field({.path = "scheduler.params.final_div_factor",
             .min = 0,
             .max = 1e15,
             .when = one_cycle_lr,
             .help = "the cycle ends at its initial rate / final_div_factor; above 0"},
            final_div_factor);
    f.field({.path = "scheduler.params.three_phase",
             .when = one_cycle_lr,
             .help = "fall for as many steps as the rise took, then fall to the final rate"},
            three_phase);
    f.field({.path = "scheduler.params.base_lr",
             .min = 0,
             .when = cyclic,
             .help = "learning rate at both ends of a cycle"},
            base_lr);
    f.field({.path = "scheduler.params.step_size_up",
             .min = 1,
             .max = f.kMany,
             .when = cyclic,
             .help = "steps of the rise"},
            step_size_up);
    f.field({.path = "scheduler.params.step_size_down",
             .min = 1,
             .max = f.kMany,
             .when = cyclic,
             .help = "steps of the fall (default: as for the rise)"},
            step_size_down);
    f.field({.path = "scheduler.params.mode",
             .choices = "triangular triangular2 exp_range",
             .when = cyclic,
             .help = "how cycles shrink: not at all, by half each, or by gamma each step"},
            mode);
  }
};

}  // namespace trireme
