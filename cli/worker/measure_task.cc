// SPDX-License-Identifier: Apache-2.0
// `trireme summary --measure`: a few steps of a run, and what its ranks held.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/start/run.h"
#include "trireme/train/rank/out_of_memory.h"
#include "trireme/train/setup/measure_memory.h"

namespace trireme {

int measure_task(const Words& words) {
  const TaskOptions given(words);
  tune_worker_process();
  const Config config = Config::load(ConfigInputs::from({given.get("config")}));
  Group world = init_process_group(init_options(config));
  set_thread_rank(world.rank());
  std::vector<std::vector<int64_t>> all;
  try {
    const MeasuredMemory m = measure_memory(config, world);
    all = all_gather_object(
        world,
        std::vector<int64_t>{m.weights, m.gradients, m.optimizer, m.activations, m.buffers,
                             m.resident, m.shared, m.snapshots, m.host_optimizer, m.device_total});
  } catch (const std::exception& error) {
    world.abort(failure_text(error));
    throw;
  }
  if (world.rank() == 0) {
    // The rank that holds the most decides what fits; resident memory is of the host.
    nlohmann::ordered_json out;
    const char* names[] = {"weights", "gradients", "optimizer", "activations", "buffers"};
    auto sum = [](const std::vector<int64_t>& m) { return m[0] + m[1] + m[2] + m[3] + m[4]; };
    const auto most = *std::max_element(
        all.begin(), all.end(), [&](const auto& a, const auto& b) { return sum(a) < sum(b); });
    for (size_t i = 0; i < 5; ++i) out[names[i]] = most[i];
    int64_t resident = 0;
    for (const auto& m : all) resident = resident < 0 || m[5] < 0 ? -1 : resident + m[5];
    out["resident"] = resident;
    out["shared"] = most[6];
    out["snapshots"] = most[7];
    out["host_optimizer"] = most[8];
    out["device_total"] = most[9];
    write_file_atomic(given.get("out"), out.dump() + "\n");
  }
  world.barrier();
  return kExitDone;
}

}  // namespace trireme
