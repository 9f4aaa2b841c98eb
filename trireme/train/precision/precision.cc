// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/precision/precision.h"

#include <torch/csrc/api/include/torch/version.h>

#include "trireme/base/check.h"
#include "trireme/config/sections/precision.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

at::ScalarType dtype_of(const std::string& name) {
  return name == "fp16" ? at::kHalf : name == "bf16" ? at::kBFloat16 : at::kFloat;
}

LossScaleOptions deepspeed_scale(const PrecisionSection::Fp16& fp16) {
  return deepspeed_loss_scale(fp16.loss_scale, fp16.initial_scale_power, fp16.loss_scale_window,
                              fp16.hysteresis, fp16.consecutive_hysteresis, fp16.min_loss_scale);
}

// Apex's dynamic scale.
LossScaleOptions apex_scale() {
  LossScaleOptions o;
  o.window = 2000;
  o.hysteresis = 1;
  return o;
}

void apex_preset(const PrecisionSection::Amp& amp, PrecisionPlan* plan) {
  const std::string& level = amp.opt_level;
  const at::ScalarType half = dtype_of(amp.dtype);
  plan->asked = "amp.opt_level " + level;
  if (level == "O1") plan->autocast = half;
  if (level == "O2" || level == "O3") plan->stored = plan->compute = half;
  plan->masters = level == "O2";
  // bfloat16 has float32's range and needs no scale. O3's scale is always 1.
  if (half == at::kHalf && (level == "O1" || level == "O2")) plan->scale = apex_scale();
}

}  // namespace

bool PrecisionPlan::narrow() const {
  return stored == at::kHalf || wire == at::kHalf || autocast == at::kHalf;
}

PrecisionPlan plan_precision(const Config& c) {
  const auto section = c.section<PrecisionSection>();
  PrecisionPlan plan;
  if (section.fp16.enabled) {
    plan.asked = "fp16.enabled";
    plan.stored = plan.compute = at::kHalf;
    plan.masters = true;
    plan.scale = deepspeed_scale(section.fp16);
  } else if (section.bf16.enabled) {
    plan.asked = "bf16.enabled";
    plan.stored = plan.compute = at::kBFloat16;
    plan.masters = true;
  } else if (section.amp.enabled) {
    apex_preset(section.amp, &plan);
  } else if (section.torch_autocast.enabled) {
    plan.asked = "torch_autocast.enabled";
    plan.autocast = dtype_of(section.torch_autocast.dtype == "float16" ? "fp16" : "bf16");
    if (plan.autocast == at::kHalf) plan.scale = deepspeed_scale(section.fp16);
  }
  if (section.fp16.emulate && plan.stored == at::kHalf) plan.compute = at::kFloat;
  const auto& wire = section.communication_data_type;
  plan.wire = wire ? dtype_of(*wire) : plan.stored;
  return plan;
}

std::string describe(const PrecisionPlan& plan) {
  auto name = [](at::ScalarType type) {
    return std::string(type == at::kHalf       ? "float16"
                       : type == at::kBFloat16 ? "bfloat16"
                                               : "float32");
  };
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (plan.stored != at::kFloat) add(name(plan.stored) + " parameters");
  if (plan.emulated()) add(name(plan.compute) + " arithmetic");
  if (plan.masters) add("float32 masters");
  if (plan.autocast) add(name(*plan.autocast) + " autocast");
  if (plan.wire != plan.stored) add("gradients travel as " + name(plan.wire));
  if (plan.scale) add(plan.scale->dynamic ? "dynamic loss scale" : "fixed loss scale");
  return text;
}

void check_precision(const PrecisionPlan& plan, at::Device device) {
  check<UsageError>(!plan.autocast || has_autocast(device.type()),
                    "{}: there is no autocast on {}: use bfloat16 parameters (bf16.enabled), or "
                    "float32",
                    plan.asked, device_text(device));
  if (plan.autocast) check_autocast(device.type(), *plan.autocast);
  if (plan.compute != at::kHalf) return;
  if (!device.is_cpu()) {
    const std::string lacks = detail::half_lacks(device);
    check<UsageError>(lacks.empty(),
                      "{}: {} has no float16 kernels for {}: use bfloat16 (bf16.enabled), or "
                      "fp16.emulate (float16 parameters and gradients, float32 arithmetic)",
                      plan.asked, device_text(device), lacks);
    return;
  }
  const std::string& lacks = detail::cpu_half_lacks();
  check<UsageError>(
      lacks.empty(),
      "{}: LibTorch {} has no float16 kernels on a CPU for {}. Set fp16.emulate to "
      "true (float16 parameters and gradients, float32 arithmetic), or use bfloat16 (bf16.enabled)",
      plan.asked, TORCH_VERSION, lacks);
}

}  // namespace trireme
