// SPDX-License-Identifier: Apache-2.0
// Rules for models that are divided over ranks: what does not compose with that.
#include "trireme/base/check.h"
#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/data_efficiency.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/recompute.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"

namespace trireme {
namespace {

constexpr const char* kTp = "parallelism.tp";
constexpr const char* kPp = "parallelism.pp";
constexpr const char* kCp = "parallelism.cp";
constexpr const char* kSequence = "parallelism.sequence_parallel";

/// Complains about what is given beside an axis on which it is not to be used.
class Beside {
 public:
  Beside(const Config& c, Findings& f, const char* axis)
      : c_(c), f_(f), beside_(fmt::format("{} {} ({})", axis, c.get_int(axis), c.origin(axis))) {}
  void refuse(const char* path, bool given, const std::string& why) const {
    if (given && f_.fine({path}))
      f_.complain(path, fmt::format("is {}, and {}: {}", *c_.value_text(path), beside_, why));
  }

 private:
  const Config& c_;
  Findings& f_;
  const std::string beside_;
};

// What is for models that each rank holds whole.
void divided_model_rules(const Config& c, const Beside& axis) {
  axis.refuse("model.type", c.section<ModelSection>().type != "gpt",
              "only gpt can be divided over ranks; use it, or 1");
  axis.refuse("compression.type", c.section<CompressionSection>().codec.type != "none",
              "codecs are for ranks with the same parameters; use none");
  axis.refuse("averaging.type", c.section<AveragingSection>().type != "none",
              "ranks of one model cannot step separately; use none");
  axis.refuse("balance.mode", c.section<BalanceSection>().mode != "none",
              "ranks of one model cannot take different shares; use none");
  const auto comm = c.section<CommSection>();
  axis.refuse("comm.tune_buckets", comm.tune_buckets,
              "ranks of one model have different buckets; use false");
  axis.refuse("comm.strategy", comm.strategy != "all_reduce",
              "ranks of one model have different parameters; use all_reduce");
  axis.refuse("monitor.gradient_noise_scale", c.get_bool("monitor.gradient_noise_scale"),
              "it compares gradients of the whole model, of which ranks hold parts; use false");
  axis.refuse("training.find_unused_parameters",
              c.section<TrainingSection>().find_unused_parameters,
              "the parts of the built-in models are all used; use false");
  const auto precision = c.section<PrecisionSection>();
  axis.refuse("fp16.emulate", precision.fp16.enabled && precision.fp16.emulate,
              "it copies the weights beside the model; use bf16, or fp16 without emulate");
  axis.refuse("zero_optimization.offload_param.device",
              c.section<OffloadSection>().parameters.on_disk(),
              "files hold whole parameters, of which ranks hold parts; use none");
}

void tensor_parallel_rules(const Config& c, Findings& f) {
  const Beside tp(c, f, kTp);
  divided_model_rules(c, tp);
  tp.refuse("optimizer.type", c.section<OptimizerSection>().type == "Adafactor",
            "its state is factored over whole matrices, of which ranks hold parts; use another "
            "optimizer");
}

void context_parallel_rules(const Config& c, Findings& f) {
  const Beside cp(c, f, kCp);
  cp.refuse("model.type", c.section<ModelSection>().type != "gpt",
            "only gpt has positions to divide; use it, or 1");
  cp.refuse("compression.type", c.section<CompressionSection>().codec.type != "none",
            "a codec clips by each rank's own weight, and ranks of one row have one together; use "
            "none");
  cp.refuse("averaging.type", c.section<AveragingSection>().type != "none",
            "ranks that have parts of the same samples cannot step separately; use none");
  cp.refuse("balance.mode", c.section<BalanceSection>().mode != "none",
            "ranks that have parts of the same samples cannot take different shares; use none");
  const auto comm = c.section<CommSection>();
  cp.refuse("comm.tune_buckets", comm.tune_buckets,
            "it times what ranks with different samples send; use false");
  cp.refuse("comm.strategy", comm.strategy != "all_reduce",
            "gradients of parts of a sample are to be added; use all_reduce");
  cp.refuse("monitor.gradient_noise_scale", c.get_bool("monitor.gradient_noise_scale"),
            "it compares gradients of different samples, of which these ranks have parts; use "
            "false");
  cp.refuse("training.find_unused_parameters", c.section<TrainingSection>().find_unused_parameters,
            "the built-in gpt uses all of them; use false");
  const auto precision = c.section<PrecisionSection>();
  cp.refuse("fp16.emulate", precision.fp16.enabled && precision.fp16.emulate,
            "it copies the weights beside the model; use bf16, or fp16 without emulate");
  cp.refuse("zero_optimization.offload_param.device",
            c.section<OffloadSection>().parameters.on_disk(),
            "files are for ranks that read different samples; use none");
  cp.refuse("training.reproducible", c.section<TrainingSection>().reproducible,
            "the gradients of a leaf are sums over its ranks, in another order than one rank's; "
            "use false");
}

void pipeline_rules(const Config& c, Findings& f) {
  const Beside pp(c, f, kPp);
  divided_model_rules(c, pp);
  const auto parallelism = c.section<ParallelismSection>();
  const char* file = "parallelism.schedule_file";
  const auto refuse_beside_file = [&](const char* other, bool given) {
    if (given && f.fine({file, other}) && parallelism.schedule_file)
      f.complain(file,
                 fmt::format("is {}, and {} is {} ({}): a table says all of a schedule, so "
                             "leave one of them out",
                             *c.value_text(file), other, *c.value_text(other), c.origin(other)));
  };
  // A resolved configuration gives every key, with where its value came from.
  refuse_beside_file("parallelism.schedule", c.origin("parallelism.schedule") != "default");
  refuse_beside_file("parallelism.virtual_stages", parallelism.virtual_stages > 0);
  const char* method = "parallelism.partition_method";
  if (f.fine({method, "parallelism.stages"}) && parallelism.partition_method == "measured" &&
      parallelism.stages)
    f.complain(method, fmt::format("is measured, and parallelism.stages ({}) says which blocks "
                                   "each stage has: leave one of them out",
                                   c.origin("parallelism.stages")));
  const char *whole = "parallelism.whole_stages", *stage = "zero_optimization.stage";
  if (f.fine({whole, stage}) && parallelism.whole_stages > 0 && c.section<ZeroSection>().stage != 3)
    f.complain(whole,
               fmt::format("is {}, and {} is {} ({}): only stage 3 gathers parameters; "
                           "leave it out, or use stage 3",
                           parallelism.whole_stages, stage, *c.value_text(stage), c.origin(stage)));
  pp.refuse("training.activation_memory_mb", c.section<RecomputeSection>().activation_memory_mb > 0,
            "how many micro-batches a rank keeps depends on its stage; use recompute_every");
  const char* batching = "data_efficiency.data_sampling.dynamic_batching.enabled";
  pp.refuse(batching, c.section<DataEfficiencySection>().batching_enabled,
            "the schedule is for one number of micro-batches; use false");
}

}  // namespace

void parallelism_rules(const Config& c, Findings& f) {
  if (!f.fine({kTp, kPp, kCp, kSequence})) return;
  const char* replicas = "training.check_replicas";
  if (f.fine({replicas, "averaging.type"}) && c.get_int(replicas) > 0 &&
      c.section<AveragingSection>().type != "none")
    f.complain(replicas, fmt::format("is {}, and averaging.type is {} ({}): ranks that step "
                                     "separately hold different parameters; use 0",
                                     *c.value_text(replicas), *c.value_text("averaging.type"),
                                     c.origin("averaging.type")));
  const auto parallelism = c.section<ParallelismSection>();
  if (parallelism.tp > 1) tensor_parallel_rules(c, f);
  if (parallelism.pp > 1) pipeline_rules(c, f);
  if (parallelism.cp > 1) context_parallel_rules(c, f);
  if (parallelism.cp == 1)
    for (const char* path : {"parallelism.cp_method", "parallelism.cp_balance"})
      f.idle(path, "has no effect without parallelism.cp");
  if (parallelism.tp == 1) f.idle(kSequence, "has no effect without parallelism.tp");
  if (parallelism.pp > 1) return;
  for (const char* path :
       {"parallelism.schedule", "parallelism.schedule_file", "parallelism.virtual_stages",
        "parallelism.stages", "parallelism.partition_method", "parallelism.whole_stages"})
    f.idle(path, "has no effect without parallelism.pp");
}

}  // namespace trireme
