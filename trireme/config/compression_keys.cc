// SPDX-License-Identifier: Apache-2.0
// How gradients go between ranks: comm.strategy and compression. docs/compression.md.
#include "trireme/base/compression_limits.h"
#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

namespace limits = compression_limits;

constexpr const char* kAnyCodec = "compression.type=int8,topk,sign,powersgd,auto";

KeyInfo flag(const char* path, const char* when, const char* help) {
  return {
      .path = path, .type = KeyType::boolean, .default_json = "true", .when = when, .help = help};
}

}  // namespace

std::vector<KeyInfo> compression_keys() {
  return {
      {.path = "comm.strategy",
       .type = KeyType::text,
       .default_json = "\"all_reduce\"",
       .choices = "all_reduce adasum parameter_server broadcast_parameters",
       .help = "how gradients become one: parameter_server collects them on rank 0 and sends the "
               "sum back; with broadcast_parameters rank 0 steps and sends weights; adasum adds "
               "adaptively"},
      {.path = "comm.tune_buckets",
       .type = KeyType::boolean,
       .default_json = "false",
       .help = "bucket size, order and algorithm are tried out while training"},
      number_when("comm.tuning_budget", KeyType::number, "0.02", 1e-4, 1, "comm.tune_buckets=true",
                  "part of all time so far that trying may have cost"),
      {.path = "comm.buckets_file",
       .type = KeyType::text,
       .help = "what was found is written there, and taken from there by the next run"},
      {.path = "compression.type",
       .type = KeyType::text,
       .default_json = "\"none\"",
       .choices = "none int8 topk sign powersgd auto",
       .help = "what gradients are on their way between ranks; auto measures the link and chooses "
               "for each bucket"},
      number_when("compression.block", KeyType::integer, "256", limits::kLeastBlock,
                  limits::kMostBlock, "compression.type=int8,auto", "elements that share a scale"),
      number_when("compression.density", KeyType::number, "0.1", limits::kLeastDensity,
                  limits::kMostDensity, "compression.type=topk,auto",
                  "part of each parameter's elements that travels"),
      number_when("compression.rank", KeyType::integer, "4", 1, limits::kMostRank,
                  "compression.type=powersgd,auto",
                  "of the two factors that travel in a matrix's place"),
      number_when("compression.start_step", KeyType::integer, "2", 0, 1e15, kAnyCodec,
                  "steps whose gradients travel as they are, to begin with"),
      {.path = "compression.clip",
       .type = KeyType::text,
       .default_json = "\"auto\"",
       .choices = "auto own mean",
       .when = kAnyCodec,
       .help =
           "what gradient_clipping clips: each rank's own gradient before it is encoded, or the "
           "mean of what arrived; auto: the mean under sign, else its own"},
      flag("compression.error_feedback", kAnyCodec,
           "what was not sent is added to the next gradient"),
      number_when("compression.max_residual", KeyType::number, "0.4", limits::kLeastResidual,
                  limits::kMostResidual, "compression.type=auto",
                  "part of a bucket's energy that a codec may leave"),
      number_when("compression.decide_every", KeyType::integer, "500", limits::kLeastDecideEvery,
                  1e15, "compression.type=auto", "steps from one choice to the next"),
      flag("compression.warm_start", "compression.type=powersgd,auto",
           "factors begin where those of the last step ended"),
  };
}

}  // namespace trireme::detail
