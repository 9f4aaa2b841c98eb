// SPDX-License-Identifier: Apache-2.0
// Ranks that step apart and average weights. docs/compression.md.
#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

constexpr const char* kAnyAveraging = "averaging.type=local_sgd,diloco,hierarchical";
constexpr const char* kDiLoCo = "averaging.type=diloco";
constexpr const char* kLevels = "averaging.type=hierarchical";

KeyInfo list(const char* path, const char* help) {
  return {.path = path,
          .type = KeyType::integers,
          .default_json = "[]",
          .min = 1,
          .max = 1e9,
          .when = kLevels,
          .help = help};
}

}  // namespace

std::vector<KeyInfo> averaging_keys() {
  return {
      {.path = "averaging.type",
       .type = KeyType::text,
       .default_json = "\"none\"",
       .choices = "none local_sgd diloco hierarchical",
       .help = "ranks step on their own gradients and become one model now and then: by the mean "
               "of their weights, or (diloco) by an outer optimizer's step"},
      number_when("averaging.period", KeyType::integer, "16", 1, 1e9,
                  "averaging.type=local_sgd,diloco", "steps apart between two averages"),
      number_when("averaging.start_step", KeyType::integer, "0", 0, 1e15, kAnyAveraging,
                  "steps that all take as one, to begin with (post-local SGD)"),
      number_when(
          "averaging.near", KeyType::integer, "1", 1, 1e6, kAnyAveraging,
          "neighbouring ranks that add their gradients in every step all the same, such as those "
          "of a host"),
      list("averaging.group_sizes",
           "ranks that average together, from small groups to all: [2, 8]"),
      list("averaging.periods", "… and after how many steps: [4, 32]"),
      number_when("averaging.outer_lr", KeyType::number, "0.7", 1e-9, 100, kDiLoCo,
                  "learning rate of the outer SGD"),
      number_when("averaging.outer_momentum", KeyType::number, "0.6", 0, 0.999999, kDiLoCo,
                  "its momentum (the paper's 0.9 is for hundreds of steps a period)"),
      {.path = "averaging.nesterov",
       .type = KeyType::boolean,
       .default_json = "true",
       .when = kDiLoCo,
       .help = "in Nesterov's form"},
      {.path = "averaging.compression",
       .type = KeyType::text,
       .default_json = "\"none\"",
       .choices = "none int8 topk sign",
       .when = kDiLoCo,
       .help = "what is averaged travels so (compression.type says how)"},
  };
}

}  // namespace trireme::detail
