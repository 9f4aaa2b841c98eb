// SPDX-License-Identifier: Apache-2.0
// Keys of mixed precision: DeepSpeed's sections fp16, bf16, amp and torch_autocast,
// communication_data_type and data_types. docs/mixed_precision.md says what they do.
#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

KeyInfo off(const char* path, const char* help) {
  return {.path = path,
          .type = KeyType::boolean,
          .default_json = "false",
          .help = help,
          .deepspeed = true};
}

KeyInfo number(const char* path, KeyType type, const char* value, double min, double max,
               const char* help) {
  return {.path = path,
          .type = type,
          .default_json = value,
          .min = min,
          .max = max,
          .help = help,
          .deepspeed = true};
}

KeyInfo refused(const char* path, KeyType type, const char* harmless, const char* why) {
  return {.path = path,
          .type = type,
          .deepspeed = true,
          .status = KeyStatus::refused,
          .why = why,
          .harmless = harmless};
}

constexpr double kManySteps = 1e15;
constexpr const char* kHalfMasters =
    "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW";
constexpr const char* kDataTypes =
    "fp16.enabled, bf16.enabled and amp choose the parameters' type; buffers are float32";

}  // namespace

std::vector<KeyInfo> precision_keys() {
  return {
      off("fp16.enabled",
          "float16 parameters and gradients, float32 master weights, dynamic loss scale"),
      {.path = "fp16.emulate",
       .type = KeyType::boolean,
       .default_json = "false",
       .help = "float16 is stored and arithmetic is float32: for CPUs whose LibTorch lacks float16 "
               "kernels"},
      number("fp16.loss_scale", KeyType::number, "0.0", 0, 3.4e38,
             "a loss scale that stays; 0: dynamic"),
      number("fp16.initial_scale_power", KeyType::integer, "16", 0, 127,
             "the dynamic scale begins at 2 to this power"),
      number("fp16.loss_scale_window", KeyType::integer, "1000", 1, kManySteps,
             "good steps in a row until the scale doubles"),
      number("fp16.hysteresis", KeyType::integer, "2", 1, kManySteps,
             "overflows until the scale halves; a growth of the scale restores them"),
      off("fp16.consecutive_hysteresis", "every good step restores the hysteresis"),
      number("fp16.min_loss_scale", KeyType::number, "1.0", 1e-30, 3.4e38,
             "the dynamic scale's floor; an overflow there ends the run"),
      off("bf16.enabled", "bfloat16 parameters and gradients, float32 master weights"),
      {.path = "bfloat16.enabled",
       .type = KeyType::boolean,
       .deepspeed = true,
       .alias_of = "bf16.enabled"},
      off("amp.enabled", "Apex's presets: amp.opt_level"),
      {.path = "amp.opt_level",
       .type = KeyType::text,
       .default_json = "\"O1\"",
       .choices = "O0 O1 O2 O3",
       .help = "O0: float32; O1: autocast; O2: half model, float32 masters; O3: half alone",
       .deepspeed = true},
      {.path = "amp.dtype",
       .type = KeyType::text,
       .default_json = "\"fp16\"",
       .choices = "fp16 bf16",
       .help = "the half type of amp.opt_level (Apex has fp16); bf16 needs no loss scale"},
      off("torch_autocast.enabled",
          "float32 parameters; matmul, linear, convolution compute in torch_autocast.dtype"),
      {.path = "torch_autocast.dtype",
       .type = KeyType::text,
       .default_json = "\"bfloat16\"",
       .choices = "bfloat16 float16",
       .help = "float16 (CUDA) takes the loss scale of fp16's keys",
       .deepspeed = true},
      {.path = "communication_data_type",
       .type = KeyType::text,
       .choices = "fp32 fp16 bf16",
       .help = "type in which gradients travel and are added; without it, that of the gradients",
       .deepspeed = true},
      {.path = "data_types.grad_accum_dtype",
       .type = KeyType::text,
       .choices = "fp32 fp16 bf16",
       .help = "type in which micro-batches' gradients are added: that of the gradients",
       .deepspeed = true},

      without_effect("fp16.auto_cast", "inputs always become the model's type"),
      without_effect("fp16.fp16_opt_level", "is Apex's; amp.opt_level sets it"),
      without_effect("fp16.opt_level", "is Apex's; amp.opt_level sets it"),
      without_effect("bf16.immediate_grad_update",
                     "gradients are always where the optimizer reads them"),
      without_effect("bf16.check_grad_overflow",
                     "a gradient that is not finite always ends a bfloat16 run"),
      without_effect("bfloat16.immediate_grad_update",
                     "gradients are always where the optimizer reads them"),
      without_effect("bfloat16.check_grad_overflow",
                     "a gradient that is not finite always ends a bfloat16 run"),
      refused("fp16.fp16_master_weights_and_grads", KeyType::boolean, "false", kHalfMasters),
      refused("bf16.bf16_master_weights_and_grads", KeyType::boolean, "false", kHalfMasters),
      refused("bf16.bf16_optimizer_states", KeyType::boolean, "false", kHalfMasters),
      refused("bfloat16.bf16_master_weights_and_grads", KeyType::boolean, "false", kHalfMasters),
      refused("bfloat16.bf16_optimizer_states", KeyType::boolean, "false", kHalfMasters),
      refused("torch_autocast.lower_precision_safe_modules", KeyType::any, "",
              "LibTorch's autocast chooses by operator, not by module"),
      // The parts that Apex's own call takes beside opt_level.
      refused("amp.loss_scale", KeyType::text, "\"dynamic\"",
              "the preset sets it; fp16.enabled takes fp16.loss_scale"),
      refused("amp.master_weights", KeyType::any, "", "the preset sets it: amp.opt_level O2 or O3"),
      refused("amp.keep_batchnorm_fp32", KeyType::any, "",
              "norms compute as LibTorch does for the model's type"),
      refused("amp.cast_model_type", KeyType::any, "", "amp.dtype says fp16 or bf16"),
      refused("amp.min_loss_scale", KeyType::any, "",
              "the preset sets it; fp16.enabled takes fp16.min_loss_scale"),
      refused("amp.max_loss_scale", KeyType::any, "", "the scale grows as far as float32 goes"),
      without_effect("amp.verbosity", "changes what Apex prints"),
      without_effect("amp.num_losses", "a step has one loss"),
      refused("data_types.param_dtype", KeyType::text, "\"fp32\"", kDataTypes),
      refused("data_types.buffer_dtype", KeyType::text, "\"fp32\"", kDataTypes),
  };
}

}  // namespace trireme::detail
