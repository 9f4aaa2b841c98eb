// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/ask_device.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"

namespace trireme {

DeviceAnswer ask_device(const DeviceQuestion& question) {
  DeviceAnswer answer;
  for (int rank = question.first; rank < question.first + question.ranks; ++rank) try {
      const at::Device device = choose_device(question.device, rank);
      answer.kind = c10::DeviceTypeName(device.type(), true);
      const auto use = question.memory && !device.is_cpu() ? memory_use(device) : std::nullopt;
      if (use) answer.memory = answer.memory ? std::min(answer.memory, use->total) : use->total;
    } catch (const UsageError& e) {
      return {e.what(), "", 0};
    }
  return answer;
}

}  // namespace trireme
