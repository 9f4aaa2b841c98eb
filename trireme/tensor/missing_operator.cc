// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/missing_operator.h"

#include <string>

#include "trireme/base/check.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {
namespace {

/// "aten::gelu" of "Could not run 'aten::gelu' with arguments from …", and of "The operator
/// 'aten::gelu' is not …", as some devices say; else the whole text.
std::string operator_in(const std::string& text) {
  const size_t begin = text.find('\''), end = text.find('\'', begin + 1);
  if (begin == std::string::npos || end == std::string::npos) return "an operator (" + text + ")";
  return text.substr(begin, end + 1 - begin);
}

}  // namespace

std::string missing_operator_text(at::Device device, const c10::NotImplementedError& error,
                                  const std::string& needed_by) {
  return fmt::format(
      "LibTorch {} has no kernel of {} for the device {}{}: take a LibTorch that has it, compute "
      "it "
      "in another way, or set device to cpu",
      TORCH_VERSION, operator_in(brief(error)), device_text(device),
      needed_by.empty() ? "" : ", which " + needed_by + " needs");
}

void refuse_missing_operator(at::Device device, const c10::NotImplementedError& error,
                             const std::string& needed_by) {
  if (device.is_cpu()) return;
  fail<UsageError>("{}", missing_operator_text(device, error, needed_by));
}

}  // namespace trireme
