// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

namespace gloo::transport {
class Context;
class Device;
}  // namespace gloo::transport

namespace trireme::detail {

/// Lets another thread cancel Gloo's connecting, which otherwise waits for a dead peer until its
/// limit. Gloo makes connections through a device; the one from on() keeps track of them.
/// Thread-safe.
class Connecting : public std::enable_shared_from_this<Connecting> {
 public:
  /// Returns a device to connect one group with, in place of `device`.
  std::shared_ptr<::gloo::transport::Device> on(std::shared_ptr<::gloo::transport::Device> device);
  /// Called repeatedly from the connecting thread while Gloo uses the store: once on()'s device has
  /// been asked for a connection, this object can close it.
  void proceeds();
  /// Closes existing connections and ends waits for new ones. Must not be called from the
  /// connecting thread.
  void give_up();

 private:
  friend struct ConnectingDevice;
  std::mutex mutex_;
  std::weak_ptr<::gloo::transport::Context> context_;
  bool ready_ = false;  // has its pairs, whose vector no longer changes
};

}  // namespace trireme::detail
