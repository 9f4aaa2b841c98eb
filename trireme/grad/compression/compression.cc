// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/compression.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/compression_options.h"
#include "trireme/grad/compression/auto_hook.h"
#include "trireme/grad/compression/int8_hook.h"
#include "trireme/grad/compression/power_sgd_hook.h"
#include "trireme/grad/compression/sign_hook.h"
#include "trireme/grad/compression/top_k_hook.h"

namespace trireme {
namespace {

struct Type {
  std::string_view name;
  std::vector<std::string_view> options;
};

const std::vector<Type>& types() {
  static const std::vector<Type> all = {
      {"none", {}},
      {"int8", {"block", "error_feedback", "start_step"}},
      {"topk", {"density", "error_feedback", "start_step"}},
      {"sign", {"error_feedback", "start_step"}},
      {"powersgd",
       {"rank", "min_compression", "warm_start", "seed", "error_feedback", "start_step"}},
      {"auto",
       {"block", "density", "rank", "min_compression", "warm_start", "seed", "error_feedback",
        "start_step", "max_residual", "decide_every"}},
  };
  return all;
}

PowerSgdOptions power_sgd_options(const CompressionOptions& o) {
  return {.matrix_approximation_rank = o.rank,
          .min_compression_rate = o.min_compression,
          .warm_start = o.warm_start,
          .seed = o.seed,
          .common = {o.error_feedback, o.start_step}};
}

// Whether there is something that PowerSGD would compress.
bool has_factors(const CompressionOptions& o, const NamedTensors& parameters) {
  try {
    const auto plan = plan_power_sgd(parameters, o.rank, o.min_compression);
    return std::any_of(plan.begin(), plan.end(), [](const auto& s) { return s.compressed; });
  } catch (const UsageError&) {
    return false;  // the rank is above every matrix
  }
}

}  // namespace

std::string compression_types() { return "none, int8, topk, sign, powersgd or auto"; }

bool compression_option_applies(const std::string& type, const std::string& option) {
  for (const Type& t : types())
    if (t.name == type)
      return option == "type" ||
             std::find(t.options.begin(), t.options.end(), option) != t.options.end();
  return false;
}

void check_compression(const CompressionOptions& o) {
  const bool known =
      std::any_of(types().begin(), types().end(), [&](const Type& t) { return t.name == o.type; });
  check<UsageError>(known, "there is no compression '{}': choose {}", o.type, compression_types());
  const auto in_range = [&](const char* option, bool ok, auto value, const std::string& range) {
    check<UsageError>(ok || !compression_option_applies(o.type, option),
                      "compression {}: {} is {}: choose {}", o.type, option, value, range);
  };
  namespace limits = compression_limits;
  const auto from_to = [](auto least, auto most) { return fmt::format("{} to {}", least, most); };
  in_range("block", o.block >= limits::kLeastBlock && o.block <= limits::kMostBlock, o.block,
           from_to(limits::kLeastBlock, limits::kMostBlock) + " elements");
  in_range("density", o.density >= limits::kLeastDensity && o.density <= limits::kMostDensity,
           o.density, from_to(limits::kLeastDensity, limits::kMostDensity));
  in_range("rank", o.rank >= 1 && o.rank <= limits::kMostRank, o.rank,
           from_to(1, limits::kMostRank));
  in_range("min_compression", o.min_compression > 0, o.min_compression, "above 0");
  in_range("start_step", o.start_step >= 0, o.start_step, "0 or more");
  in_range("max_residual",
           o.max_residual >= limits::kLeastResidual && o.max_residual <= limits::kMostResidual,
           o.max_residual, from_to(limits::kLeastResidual, limits::kMostResidual));
  in_range("decide_every", o.decide_every >= limits::kLeastDecideEvery, o.decide_every,
           fmt::format("{} or more", limits::kLeastDecideEvery));
}

std::shared_ptr<CompressionHook> make_compression(const CompressionOptions& o,
                                                  const NamedTensors& parameters,
                                                  const Group& group) {
  check_compression(o);
  const CompressionCommon common{o.error_feedback, o.start_step};
  if (o.type == "int8") return int8_hook(parameters, group, {o.block, common});
  if (o.type == "topk") return top_k_hook(parameters, group, {o.density, common});
  if (o.type == "sign") return sign_hook(parameters, group, {common});
  if (o.type == "powersgd") return power_sgd_hook(parameters, group, power_sgd_options(o));
  if (o.type == "none") return nullptr;
  std::vector<std::unique_ptr<Codec>> codecs;
  codecs.push_back(int8_codec(o.block));
  if (has_factors(o, parameters))
    codecs.push_back(power_sgd_codec(parameters, power_sgd_options(o)));
  codecs.push_back(sign_codec());
  codecs.push_back(top_k_codec(o.density));
  return auto_hook(std::move(codecs), parameters, group, {o.max_residual, o.decide_every, common});
}

}  // namespace trireme
