// SPDX-License-Identifier: Apache-2.0
#include "cli/ask_worker.h"

#include <nlohmann/json.hpp>

#include "cli/doctor/child.h"
#include "cli/worker_program.h"

namespace trireme {

DeviceAnswer ask_worker(const DeviceQuestion& q) {
  const std::string worker = find_worker_program();
  if (worker.empty()) return {};
  const doctor::Answer said =
      doctor::ask({worker, "device", "--device", q.device, "--first", std::to_string(q.first),
                   "--ranks", std::to_string(q.ranks), "--memory", q.memory ? "yes" : "no"},
                  std::chrono::seconds(60));
  const auto json = nlohmann::json::parse(said.text, nullptr, false);
  if (!said.failed.empty() || !json.is_object()) return {};
  return {json.value("refusal", ""), json.value("kind", ""), json.value("memory", int64_t{0})};
}

}  // namespace trireme
