// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/connecting.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <exception>
#include <string>
#include <utility>

#include "trireme/base/failpoint.h"
#include "trireme/base/log.h"

// Gloo's own function, which also does nothing. LibTorch's libraries need Gloo's; our code does not
// link it by name, and where it is a part of LibTorch it is not exported.
namespace gloo::transport {
__attribute__((weak)) Device::~Device() {}
}  // namespace gloo::transport

namespace trireme::detail {

struct ConnectingDevice final : ::gloo::transport::Device {
  ConnectingDevice(std::shared_ptr<::gloo::transport::Device> below,
                   std::shared_ptr<Connecting> told)
      : below(std::move(below)), told(std::move(told)) {}
  std::string str() const override { return below->str(); }
  const std::string& getPCIBusID() const override { return below->getPCIBusID(); }
  int getInterfaceSpeed() const override { return below->getInterfaceSpeed(); }
  bool hasGPUDirect() const override { return below->hasGPUDirect(); }
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    auto context = below->createContext(rank, size);
    std::lock_guard lock(told->mutex_);
    told->context_ = context;
    return context;
  }
  const std::shared_ptr<::gloo::transport::Device> below;
  const std::shared_ptr<Connecting> told;
};

namespace {

// Not getPair(): since 2025 it connects pairs that are not connected yet, and waits for that.
struct Pairs : ::gloo::transport::Context {
  static auto& of(::gloo::transport::Context& context) { return context.*(&Pairs::pairs_); }
};

}  // namespace

std::shared_ptr<::gloo::transport::Device> Connecting::on(
    std::shared_ptr<::gloo::transport::Device> device) {
  return std::make_shared<ConnectingDevice>(std::move(device), shared_from_this());
}

// Gloo requests a context, makes all its pairs, publishes their addresses, and then connects them
// one by one, reading the store before each.
void Connecting::proceeds() {
  {
    std::lock_guard lock(mutex_);
    if (ready_ || context_.expired()) return;
    ready_ = true;
  }
  failpoint("gloo.connect");
}

void Connecting::give_up() {
  std::shared_ptr<::gloo::transport::Context> context;
  {
    std::lock_guard lock(mutex_);
    if (!ready_) return;
    context = context_.lock();
  }
  if (!context) return;
  for (auto& pair : Pairs::of(*context)) try {
      if (pair) pair->close();
    } catch (const std::exception& e) {
      log_debug("gloo: closing a connection: {}", e.what());
    }
}

}  // namespace trireme::detail
