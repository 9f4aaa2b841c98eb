// SPDX-License-Identifier: Apache-2.0
// Rules for the keys of mixed precision.
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/precision.h"

namespace trireme {

void precision_rules(const Config& c, Findings& f) {
  const auto p = c.section<PrecisionSection>();
  auto on = [&](const char* path) { return !f.broken(path) && c.get_bool(path); };
  auto at = [&](const char* path) { return fmt::format("{} ({})", path, c.origin(path)); };

  const char* first = nullptr;
  for (const char* path :
       {"fp16.enabled", "bf16.enabled", "amp.enabled", "torch_autocast.enabled"}) {
    if (!on(path)) continue;
    if (first) {
      f.complain(path,
                 fmt::format(
                     "is true, and so is {}: enable only one of fp16, bf16, amp and torch_autocast",
                     at(first)));
      return;
    }
    first = path;
  }
  // Apex's O0, like no section at all, means float32.
  const std::string amp =
      on("amp.enabled") && !f.broken("amp.opt_level") ? p.amp.opt_level : std::string();
  const bool amp_fp16 = amp.size() && !f.broken("amp.dtype") && p.amp.dtype == "fp16";
  const bool fp16_model = on("fp16.enabled") || (amp_fp16 && (amp == "O2" || amp == "O3"));
  const bool bf16_model = on("bf16.enabled") || (!amp_fp16 && (amp == "O2" || amp == "O3"));
  if (on("fp16.emulate") && !fp16_model)
    f.complain(
        "fp16.emulate",
        "is true, and no parameters are float16: set fp16.enabled, or amp.opt_level O2 or O3");
  if (on("fp16.enabled") && p.fp16.loss_scale == 0 &&
      p.fp16.min_loss_scale > std::exp2(static_cast<double>(p.fp16.initial_scale_power)))
    f.complain("fp16.min_loss_scale",
               fmt::format("is above the initial scale, 2 to the power of {}",
                           at("fp16.initial_scale_power")));

  // Sending half-precision gradients as the other half type is a mistake; sending them as fp32 is
  // not.
  const std::string wire = p.communication_data_type.value_or("");
  if ((fp16_model && wire == "bf16") || (bf16_model && wire == "fp16"))
    f.complain("communication_data_type",
               fmt::format("is {} and gradients are {}: set it to {} or fp32", wire,
                           fp16_model ? "fp16" : "bf16", fp16_model ? "fp16" : "bf16"));

  const std::string kept = fp16_model ? "fp16" : bf16_model ? "bf16" : "fp32";
  if (p.grad_accum_dtype && p.grad_accum_dtype != kept)
    f.complain("data_types.grad_accum_dtype",
               fmt::format("is {}, and gradients are kept and added in {}: this version does not "
                           "keep a second copy in another type",
                           *p.grad_accum_dtype, kept));

  if (on("training.reproducible")) {
    const char* half = on("fp16.enabled")                   ? "fp16.enabled"
                       : on("bf16.enabled")                 ? "bf16.enabled"
                       : fp16_model || bf16_model           ? "amp.opt_level"
                       : (wire == "fp16" || wire == "bf16") ? "communication_data_type"
                                                            : nullptr;
    if (half)
      f.complain("training.reproducible",
                 fmt::format("is true, and {} makes gradient buckets half precision, whose sums "
                             "depend on the split: use torch_autocast, or turn one of them off",
                             at(half)));
  }
}

}  // namespace trireme
