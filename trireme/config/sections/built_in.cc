// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/sections/built_in.h"

#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/data_efficiency.h"
#include "trireme/config/sections/elastic.h"
#include "trireme/config/sections/generate.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/monitor.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/recompute.h"
#include "trireme/config/sections/scheduler.h"
#include "trireme/config/sections/step.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"

namespace trireme {
namespace {

template <class... Sections>
std::vector<KeyInfo> rows_of_sections() {
  FieldRows made;
  (Sections().fields(made), ...);
  return std::move(made.rows);
}

}  // namespace

std::vector<KeyInfo> built_in_keys() {
  // In the order in which `config show` prints them.
  auto keys =
      rows_of_sections<ModelSection, DataSection, StepSection, TrainingSection, OptimizerSection,
                       SchedulerSection, ParallelismSection, CheckpointSection, MonitorSection,
                       GenerateSection, CommSection, CompressionSection, AveragingSection,
                       PrecisionSection, RecomputeSection, BalanceSection, DataEfficiencySection,
                       ElasticSection, ZeroSection, OffloadSection>();
  for (KeyInfo& key : deepspeed_keys()) keys.push_back(std::move(key));
  return keys;
}

}  // namespace trireme
