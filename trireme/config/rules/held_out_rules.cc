// SPDX-License-Identifier: Apache-2.0
// Rules for training.drop_last and held-out data.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"

namespace trireme {

void held_out_rules(const Config& c, Findings& f) {
  // As JSON; "" for a key that is invalid or does not apply.
  auto value = [&](const char* path) {
    return f.broken(path) || !c.applies(path) ? std::string() : *c.value_text(path);
  };
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  // Without held-out data nothing is evaluated.
  const bool nothing_held_out =
      value("data.type") == "\"dummy\"" || value("data.validation_samples") == "0";
  if (nothing_held_out)
    for (const char* path :
         {"training.eval_every", "training.eval_epochs", "training.eval_batches"})
      if (!c.is_default(path)) f.idle(path, "this data has no held-out part to evaluate on");

  const std::string data = value("data.type");
  if (!nothing_held_out && (data == "\"digits\"" || data == "\"mnist\"") &&
      !c.is_default("training.eval_batches"))
    f.idle("training.eval_batches", "images are evaluated on all held-out data");

  const char *drop = "training.drop_last", *batching =
                                               "data_efficiency.data_sampling.dynamic_batching."
                                               "enabled";
  if (value(drop) != "false") return;
  const std::string said = "is false, and the last step of an epoch has fewer samples: ";
  if (value("training.reproducible") == "true")
    f.complain(drop, said + fmt::format("{} needs micro-batches of one shape. Remove one of them",
                                        at("training.reproducible")));
  else if (value("balance.mode") == "\"throughput\"")
    f.complain(drop, said + fmt::format("{} needs the same number in each. Remove one of them",
                                        at("balance.mode")));
  else if (value(batching) == "true")
    f.complain(
        drop, fmt::format("is false, and {} makes steps of whole micro-batches: remove one of them",
                          at(batching)));
  else if (value("averaging.type") != "\"none\"" && !f.broken("averaging.type"))
    f.complain(
        drop,
        said + fmt::format(
                   "with {} every rank counts the same, however many it had. Remove one of them",
                   at("averaging.type")));
  else if (value("comm.strategy") == "\"adasum\"")
    f.complain(
        drop,
        said + fmt::format(
                   "with {} every rank counts the same, however many it had. Remove one of them",
                   at("comm.strategy")));
}

}  // namespace trireme
