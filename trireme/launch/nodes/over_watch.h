// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/base/fd.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// A thread that waits for one key of the job's store and makes a descriptor readable when it is
/// there.
class OverWatch {
 public:
  /// `store`: a connection of its own. `look`: called about ten times a second meanwhile, by the
  /// thread. `lost`: what the key is taken to hold when the store is gone.
  OverWatch(std::unique_ptr<Store> store, std::string key, std::function<void(Store&)> look,
            std::function<std::string(const std::string& why)> lost);
  /// Within a tenth of a second.
  ~OverWatch();
  OverWatch(const OverWatch&) = delete;

  int fd() const { return event_.get(); }
  /// The key's value; "": not there yet.
  std::string value();

 private:
  void watch();
  void found(const std::string& value);

  std::unique_ptr<Store> store_;
  const std::string key_;
  const std::function<void(Store&)> look_;
  const std::function<std::string(const std::string&)> lost_;
  UniqueFd event_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::string value_;
  std::thread thread_;
};

}  // namespace trireme::launch
