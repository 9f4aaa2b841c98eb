// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/signpost.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/etcd_meeting.h"
#include "trireme/launch/nodes/neighbours.h"

namespace trireme::launch {

class Signpost::Thread {
 public:
  Thread(const RunOptions& options, const net::Credentials& credentials, std::string address)
      : options_(options),
        neighbours_(credentials),
        address_(std::move(address)),
        thread_(quiet_thread([this] { run(); })) {}
  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    do {
      try {
        if (options_.rdzv_backend == "etcd")
          publish();
        else
          point();
      } catch (const std::exception& error) {
        log_debug("other nodes are not told yet where the job's store is: {}", error.what());
      }
    } while (!wait());
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stop_; });
  }
  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
  }
  /// The old address has a lease, which ends.
  void publish() {
    if (!publication_)
      publication_ = publish_store(options_, address_, [this] { return stopped(); });
  }
  void point() {
    const std::string endpoint =
        net::Address{options_.meeting_host, static_cast<uint16_t>(options_.meeting_port)}.text();
    if (endpoint == address_) return;
    if (const auto there = neighbours_.enter(endpoint)) there->set(elastic::kMoved, address_);
  }

  const RunOptions& options_;
  Neighbours neighbours_;
  const std::string address_;
  std::unique_ptr<EtcdPublication> publication_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

Signpost::Signpost(const RunOptions& options, const net::Credentials& credentials,
                   const std::string& address)
    : thread_(std::make_unique<Thread>(options, credentials, address)) {}
Signpost::~Signpost() = default;

}  // namespace trireme::launch
