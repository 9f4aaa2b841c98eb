// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// Adapts our store to c10d's interface, for its process groups to meet in. It has one connection,
/// so calls from several threads take turns, including calls that wait.
class C10dStore final : public c10d::Store {
 public:
  /// No call waits beyond `deadline`. `look` is called before each wait and repeatedly during it;
  /// it may throw.
  C10dStore(std::shared_ptr<trireme::Store> store, Deadline deadline, std::function<void()> look);
  /// Releases the store, for a process group that keeps this object after it has met. Later calls
  /// throw UsageError.
  void close();

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  c10::intrusive_ptr<c10d::Store> clone();  // virtual in newer LibTorch only

 private:
  trireme::Store& open();

  std::mutex mutex_;
  std::shared_ptr<trireme::Store> store_;
  Deadline deadline_;
  std::function<void()> look_;
};

}  // namespace trireme::detail
