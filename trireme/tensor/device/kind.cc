// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device/kind.h"

#include <map>
#include <mutex>

namespace trireme {
namespace {

struct Kinds {
  std::mutex mutex;
  std::map<at::DeviceType, std::shared_ptr<const DeviceKind>> by_type;
};

Kinds& kinds() {
  static Kinds& all = *new Kinds{{}, {{at::kCUDA, detail::cuda_kind()}}};  // outlives every thread
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
  for (const at::DeviceType type : {at::kCUDA, at::kPrivateUse1})
    if (device_count(type) > 0) present.push_back(type);
  return present;
}

}  // namespace trireme
