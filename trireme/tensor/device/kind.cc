// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device/kind.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <mutex>

#include "trireme/tensor/autocast_compat.h"

namespace trireme {
namespace {

struct Kinds {
  std::mutex mutex;
  std::map<at::DeviceType, std::shared_ptr<const DeviceKind>> by_type;
};

Kinds& kinds() {
  static Kinds& all =
      *new Kinds{// outlives every thread
                 {},
                 {{at::kCPU, detail::cpu_kind()}, {at::kCUDA, detail::cuda_kind()}}};
  return all;
}

struct OtherKind final : DeviceKind {
  explicit OtherKind(at::DeviceType type) : type(type) {}
  std::string why_none() const override {
    return "no library has added a device '" + c10::DeviceTypeName(type, true) + "' to LibTorch";
  }
  const at::DeviceType type;
};

}  // namespace

std::string DeviceKind::why_no_autocast() const {
  if (!compat::kHasPrivateAutocast)
    return "LibTorch " TORCH_VERSION " has none of the device privateuseone";
  const auto mm = c10::Dispatcher::singleton().findSchema({"aten::mm", ""});
  if (mm && mm->hasKernelForDispatchKey(compat::kPrivateAutocastKey)) return "";
  return "the library of the device privateuseone has registered no operators";
}

std::string detail::why_no_cuda_autocast() {
  return at::globalContext().hasCUDA() ? "" : "this LibTorch sees no CUDA device: give CPU";
}

void set_device_kind(at::DeviceType type, std::shared_ptr<const DeviceKind> kind) {
  std::lock_guard lock(kinds().mutex);
  kinds().by_type[type] = std::move(kind);
}

std::shared_ptr<const DeviceKind> device_kind(at::DeviceType type) {
  std::lock_guard lock(kinds().mutex);
  std::shared_ptr<const DeviceKind>& kind = kinds().by_type[type];
  if (!kind) kind = std::make_shared<OtherKind>(type);
  return kind;
}

std::vector<at::DeviceType> asynchronous_kinds() {
  std::vector<at::DeviceType> present;
  for (const at::DeviceType type : kDeviceKinds)
    if (type != at::kCPU && device_count(type) > 0) present.push_back(type);
  return present;
}

}  // namespace trireme
