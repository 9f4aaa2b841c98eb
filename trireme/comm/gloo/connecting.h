// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

namespace gloo::transport {
class Context;
class Device;
}  // namespace gloo::transport

namespace trireme::detail {

/// Lets another thread end Gloo's connecting: of itself it waits for a peer that has died until its
/// limit. Gloo makes its connections by a device; the one from on() says what it made. Threads:
/// any.
class Connecting : public std::enable_shared_from_this<Connecting> {
 public:
  /// To connect with in place of `device`, one group.
  std::shared_ptr<::gloo::transport::Device> on(std::shared_ptr<::gloo::transport::Device> device);
  /// From the thread that connects, again and again, while Gloo uses the store: what this can
  /// close is there once it has asked on()'s device for it.
  void proceeds();
  /// Closes what is there; whoever waits for a connection stops. Not from the thread that connects.
  void give_up();

 private:
  friend struct ConnectingDevice;
  std::mutex mutex_;
  std::weak_ptr<::gloo::transport::Context> context_;
  bool ready_ = false;  // has its pairs, whose vector nobody changes any more
};

}  // namespace trireme::detail
