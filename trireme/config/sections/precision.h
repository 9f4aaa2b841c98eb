// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Mixed precision: DeepSpeed's sections fp16, bf16, amp and torch_autocast, and the types in which
/// gradients are sent and added. See docs/mixed_precision.md.
struct PrecisionSection {
  struct Fp16 {
    bool enabled = false;
    bool emulate = false;
    double loss_scale = 0;
    int64_t initial_scale_power = 16;
    int64_t loss_scale_window = 1000;
    int64_t hysteresis = 2;
    bool consecutive_hysteresis = false;
    double min_loss_scale = 1;
  } fp16;
  struct Bf16 {
    bool enabled = false;
  } bf16;
  struct Amp {
    bool enabled = false;
    std::string opt_level = "O1";
    std::string dtype = "fp16";
  } amp;
  struct TorchAutocast {
    bool enabled = false;
    std::string dtype = "bfloat16";
  } torch_autocast;
  std::optional<std::string> communication_data_type;
  std::optional<std::string> grad_accum_dtype;

  void fields(Fields& f) {
    f.field({.path = "fp16.enabled",
             .help = "float16 parameters and gradients, float32 master weights, dynamic loss scale",
             .deepspeed = true},
            fp16.enabled);
    f.field(
        {.path = "fp16.emulate",
         .help =
             "store float16 and compute in float32, for CPUs whose LibTorch lacks float16 kernels"},
        fp16.emulate);
    f.field({.path = "fp16.loss_scale",
             .min = 0,
             .max = 3.4e38,
             .help = "fixed loss scale; 0: dynamic",
             .deepspeed = true},
            fp16.loss_scale);
    f.field({.path = "fp16.initial_scale_power",
             .min = 0,
             .max = 127,
             .help = "the dynamic scale starts at 2 to this power",
             .deepspeed = true},
            fp16.initial_scale_power);
    f.field({.path = "fp16.loss_scale_window",
             .min = 1,
             .max = 1e15,
             .help = "consecutive good steps after which the scale doubles",
             .deepspeed = true},
            fp16.loss_scale_window);
    f.field({.path = "fp16.hysteresis",
             .min = 1,
             .max = 1e15,
             .help = "overflows after which the scale halves; reset when the scale grows",
             .deepspeed = true},
            fp16.hysteresis);
    f.field({.path = "fp16.consecutive_hysteresis",
             .help = "reset the hysteresis after every good step",
             .deepspeed = true},
            fp16.consecutive_hysteresis);
    f.field({.path = "fp16.min_loss_scale",
             .min = 1e-30,
             .max = 3.4e38,
             .help = "smallest dynamic scale; an overflow at it ends the run",
             .deepspeed = true},
            fp16.min_loss_scale);
    f.field({.path = "bf16.enabled",
             .help = "bfloat16 parameters and gradients, float32 master weights",
             .deepspeed = true},
            bf16.enabled);
    f.row({.path = "bfloat16.enabled",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "bf16.enabled"});
    f.field({.path = "amp.enabled",
             .help = "use an Apex preset, chosen by amp.opt_level",
             .deepspeed = true},
            amp.enabled);
    f.field({.path = "amp.opt_level",
             .choices = "O0 O1 O2 O3",
             .help = "O0: float32; O1: autocast; O2: half model, float32 masters; O3: half only",
             .deepspeed = true},
            amp.opt_level);
    f.field({.path = "amp.dtype",
             .choices = "fp16 bf16",
             .help = "half type of amp.opt_level (Apex has fp16); bf16 needs no loss scale"},
            amp.dtype);
    f.field(
        {.path = "torch_autocast.enabled",
         .help =
             "float32 parameters; matmul, linear and convolution compute in torch_autocast.dtype",
         .deepspeed = true},
        torch_autocast.enabled);
    f.field({.path = "torch_autocast.dtype",
             .choices = "bfloat16 float16",
             .help = "autocast type; float16 (CUDA) uses the loss scale of the fp16 keys",
             .deepspeed = true},
            torch_autocast.dtype);
    f.field({.path = "communication_data_type",
             .choices = "fp32 fp16 bf16",
             .help = "type in which gradients are sent and added; by default that of the gradients",
             .deepspeed = true},
            communication_data_type);
    f.field(
        {.path = "data_types.grad_accum_dtype",
         .choices = "fp32 fp16 bf16",
         .help =
             "type in which gradients of micro-batches are added; must be that of the gradients",
         .deepspeed = true},
        grad_accum_dtype);
  }
};

}  // namespace trireme
