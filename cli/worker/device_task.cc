// SPDX-License-Identifier: Apache-2.0
// What ranks of this host would find for the device of a configuration, before there are any.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/worker/tasks.h"
#include "trireme/base/error.h"
#include "trireme/train/rank/ask_device.h"

namespace trireme {

int device_task(const Words& words) {
  const TaskOptions given(words);
  const DeviceAnswer answer =
      ask_device({given.get("device"), std::stoi(given.get("first")), std::stoi(given.get("ranks")),
                  given.get("memory") == "yes"});
  const nlohmann::ordered_json json{
      {"refusal", answer.refusal}, {"kind", answer.kind}, {"memory", answer.memory}};
  std::puts(json.dump().c_str());
  return std::fflush(stdout) == 0 ? kExitDone : kExitFailed;
}

}  // namespace trireme
