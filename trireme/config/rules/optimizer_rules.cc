// SPDX-License-Identifier: Apache-2.0
// Rules for an optimizer's parameters.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/optimizer.h"

namespace trireme {

void optimizer_rules(const Config& c, Findings& f) {
  const auto o = c.section<OptimizerSection>();
  auto at = [&](const char* path) {
    return fmt::format("{} ({})", *c.value_text(path), c.origin(path));
  };

  if (f.fine({"optimizer.params.betas"})) {
    const auto& betas = o.betas;
    if (betas.size() != 2 || betas[0] >= 1 || betas[1] >= 1)
      f.complain("optimizer.params.betas", "needs two numbers below 1, such as [0.9, 0.999]");
  }
  if (f.fine({"optimizer.params.nesterov", "optimizer.params.momentum"}) && o.nesterov &&
      o.momentum == 0)
    f.complain("optimizer.params.nesterov", "needs optimizer.params.momentum above 0");
  if (f.fine({"optimizer.params.nesterov", "optimizer.params.dampening"}) && o.nesterov &&
      o.dampening != 0)
    f.complain("optimizer.params.nesterov", "needs optimizer.params.dampening 0");
  if (f.fine({"optimizer.params.dampening", "optimizer.params.momentum"}) && o.dampening != 0 &&
      o.momentum == 0)
    f.complain("optimizer.params.dampening", "has no effect without optimizer.params.momentum");
  if (f.fine({"optimizer.params.adam_w_mode", "optimizer.type"}) && o.type == "AdamW" &&
      !o.adam_w_mode)
    f.complain("optimizer.params.adam_w_mode",
               "is false, and optimizer.type is AdamW: Adam with false is plain Adam");

  if (f.fine({"optimizer.params.min_coeff", "optimizer.params.max_coeff"}) &&
      o.min_coeff > o.max_coeff)
    f.complain("optimizer.params.min_coeff", fmt::format("is above optimizer.params.max_coeff {}",
                                                         at("optimizer.params.max_coeff")));
  if (f.fine({"optimizer.params.trust_coefficient"}) && o.trust_coefficient == 0)
    f.complain("optimizer.params.trust_coefficient",
               "must be above 0, or no parameter would change");
  for (const char* path :
       {"optimizer.params.beta2_decay", "optimizer.params.eps1", "optimizer.params.d"})
    if (f.fine({path}) && c.get_double(path) == 0) f.complain(path, "must not be 0");
  if (f.fine({"optimizer.params.beta3"}) && o.beta3 >= 1)
    f.complain("optimizer.params.beta3", "must be below 1");
  if (f.fine({"optimizer.params.alpha"}) && o.alpha >= 1)
    f.complain("optimizer.params.alpha", "must be below 1");
}

}  // namespace trireme
