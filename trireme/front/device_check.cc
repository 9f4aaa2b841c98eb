// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/device_check.h"

#include <unistd.h>

#include "trireme/config/sections/training.h"

namespace trireme {
namespace {

/// Of a machine's card, of Jetson's, and of a Windows host's.
bool has_gpu_driver(const std::string& root) {
  for (const char* node : {"/dev/nvidiactl", "/dev/nvmap", "/dev/dxg"})
    if (::access((root + node).c_str(), F_OK) == 0) return true;
  return false;
}

}  // namespace

DeviceAnswer find_device(const Config& config, DeviceQuestion question, const AskDevice& ask,
                         const std::string& root) {
  question.device = config.section<TrainingSection>().device;
  if (question.device == "cpu" || (question.device == "auto" && !has_gpu_driver(root)))
    return {"", "cpu", 0};
  DeviceAnswer answer = ask ? ask(question) : DeviceAnswer{};
  if (!answer.refusal.empty()) answer.refusal = config.origin("device") + ": " + answer.refusal;
  return answer;
}

}  // namespace trireme
