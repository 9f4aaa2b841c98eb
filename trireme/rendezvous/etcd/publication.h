// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rendezvous/etcd/client.h"

namespace trireme {

/// A key of etcd's that is there as long as this object is, and no longer than the lease's `ttl`
/// after its process died. A thread keeps it alive, and puts it again if etcd lost it. While etcd
/// does not answer nothing happens but a warning. Threads: any.
class TRIREME_API EtcdPublication {
 public:
  struct Key {
    std::string name, value;  // the value is unlike any other publisher's
    Duration keep_alive_every = std::chrono::seconds(5);
    std::chrono::seconds ttl{15};
  };
  /// nullptr: another value stood there before, and is in `theirs`. As EtcdClient fails.
  static std::unique_ptr<EtcdPublication> publish(EtcdClient& etcd, const Key& key,
                                                  std::string* theirs);
  /// The key is gone after it, within three seconds, if etcd answers.
  ~EtcdPublication();
  EtcdPublication(const EtcdPublication&) = delete;

  /// What another has put there since, after etcd had lost ours.
  std::optional<std::string> replaced() const;

 private:
  EtcdPublication(EtcdServers servers, Key key, int64_t lease);
  void keep();
  bool wait_for_stop(Duration time);
  bool stopped() const;
  void withdraw();

  const Key key_;
  EtcdClient etcd_;  // of the thread
  int64_t lease_;    // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::optional<std::string> replaced_;
  std::thread thread_;
};

}  // namespace trireme
