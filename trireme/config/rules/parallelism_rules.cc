// SPDX-License-Identifier: Apache-2.0
// Rules for models that are divided over ranks: what does not compose with that.
#include "trireme/base/check.h"
#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/training.h"

namespace trireme {
namespace {

constexpr const char* kTp = "parallelism.tp";
constexpr const char* kSequence = "parallelism.sequence_parallel";

}  // namespace

void parallelism_rules(const Config& c, Findings& f) {
  if (!f.fine({kTp, kSequence})) return;
  const auto parallelism = c.section<ParallelismSection>();
  if (parallelism.tp == 1) {
    if (parallelism.sequence_parallel) f.idle(kSequence, "has no effect without parallelism.tp");
    return;
  }
  const std::string beside = fmt::format("{} {} ({})", kTp, parallelism.tp, c.origin(kTp));
  const auto refuse = [&](const char* path, bool given, const std::string& why) {
    if (given && f.fine({path}))
      f.complain(path, fmt::format("is {}, and {}: {}", *c.value_text(path), beside, why));
  };
  refuse("model.type", c.has("model.type") && c.section<ModelSection>().type != "gpt",
         "only gpt can be divided; use it, or parallelism.tp 1");
  refuse("optimizer.type", c.section<OptimizerSection>().type == "Adafactor",
         "its state is factored over whole matrices, of which ranks hold parts; use another "
         "optimizer");
  refuse("compression.type", c.section<CompressionSection>().codec.type != "none",
         "codecs are not seen beside divided layers; use none");
  refuse("averaging.type", c.section<AveragingSection>().type != "none",
         "ranks that step separately are not seen beside divided layers; use none");
  refuse("balance.mode", c.section<BalanceSection>().mode != "none",
         "ranks of one model cannot take different shares; use none");
  const auto comm = c.section<CommSection>();
  refuse("comm.tune_buckets", comm.tune_buckets,
         "ranks of one model have different buckets; use false");
  refuse("comm.strategy", comm.strategy != "all_reduce",
         "only all_reduce is seen beside divided layers");
  refuse("monitor.gradient_noise_scale", c.get_bool("monitor.gradient_noise_scale"),
         "it compares whole gradients, of which ranks hold parts; use false");
  refuse("training.find_unused_parameters", c.section<TrainingSection>().find_unused_parameters,
         "the parts of the built-in models are all used; use false");
  const auto precision = c.section<PrecisionSection>();
  refuse("fp16.emulate", precision.fp16.enabled && precision.fp16.emulate,
         "it copies the weights beside the model; use bf16, or fp16 without emulate");
  const auto offload = c.section<OffloadSection>();
  refuse("zero_optimization.offload_param.device", offload.parameters.on_disk(),
         "files hold whole parameters, of which ranks hold parts; use none");
}

}  // namespace trireme
