// SPDX-License-Identifier: Apache-2.0
// Rules on what ends a run, where it computes, and on reproducible runs.
#include <fmt/core.h>

#include <string_view>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/training.h"

namespace trireme {
namespace {

// "cuda", "cuda:12": what LibTorch reads as a device.
bool is_device(std::string_view text) {
  if (text == "auto" || text == "cpu") return true;
  for (const std::string_view kind : {"cuda", "privateuseone"}) {
    if (text == kind) return true;
    if (!text.starts_with(kind) || text[kind.size()] != ':') continue;
    const std::string_view number = text.substr(kind.size() + 1);
    return !number.empty() && number.size() <= 3 && (number.size() == 1 || number[0] != '0') &&
           number.find_first_not_of("0123456789") == number.npos;
  }
  return false;
}

}  // namespace

void training_rules(const Config& c, Findings& f) {
  const auto training = c.section<TrainingSection>();

  if (f.fine({"device"}) && !is_device(training.device))
    f.complain("device", fmt::format("is \"{}\": use auto, cpu, cuda, cuda:N, privateuseone or "
                                     "privateuseone:N",
                                     training.device));

  if (f.fine({"training.steps", "training.epochs"}) && training.steps == 0 && training.epochs == 0)
    f.complain("training.steps",
               "is 0 and nothing else ends the training: set training.steps or training.epochs");

  if (f.fine({"training.leaves"})) {
    auto leaves = training.leaves;
    if (leaves & (leaves - 1))
      f.complain("training.leaves", fmt::format("must be a power of two, found {}", leaves));
  }
}

}  // namespace trireme
