// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/etcd/publication.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"

namespace trireme {
namespace {

constexpr Duration kWithdrawal = std::chrono::seconds(2);

}  // namespace

std::unique_ptr<EtcdPublication> EtcdPublication::publish(EtcdClient& etcd, const Key& key,
                                                          std::string* theirs) {
  const int64_t lease = etcd.grant(key.ttl);
  const EtcdClient::Put put = etcd.put_if_absent(key.name, key.value, lease);
  check<PeerLost>(!put.lease_ended, "etcd ended a lease at once");
  if (put.value == key.value)
    return std::unique_ptr<EtcdPublication>(new EtcdPublication(etcd.servers(), key, lease));
  *theirs = put.value;
  etcd.revoke(lease);
  return nullptr;
}

EtcdPublication::EtcdPublication(EtcdServers servers, Key key, int64_t lease)
    : key_(std::move(key)),
      etcd_(std::move(servers), [this] { return stopped(); }),
      lease_(lease),
      thread_(quiet_thread([this] { keep(); })) {}

EtcdPublication::~EtcdPublication() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<std::string> EtcdPublication::replaced() const {
  const std::lock_guard lock(mutex_);
  return replaced_;
}

void EtcdPublication::keep() {
  Clock::time_point answered = Clock::now();
  bool warned = false;
  while (!wait_for_stop(key_.keep_alive_every)) {
    try {
      if (!etcd_.keep_alive(lease_)) lease_ = etcd_.grant(key_.ttl);
      const EtcdClient::Put put = etcd_.put_if_absent(key_.name, key_.value, lease_);
      if (!put.lease_ended && put.value != key_.value) {
        const std::lock_guard lock(mutex_);
        replaced_ = put.value;
        break;
      }
      answered = Clock::now();
      if (std::exchange(warned, false)) log_info("etcd answers again");
    } catch (const Aborted&) {
      break;
    } catch (const std::exception& error) {
      if (!warned && Clock::now() - answered >= key_.ttl) {
        warned = true;
        log_warn("{}: the job goes on, and no other node finds it meanwhile", error.what());
      }
    }
  }
  withdraw();
}

bool EtcdPublication::wait_for_stop(Duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return stop_; });
}

bool EtcdPublication::stopped() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void EtcdPublication::withdraw() {
  try {
    EtcdClient etcd(etcd_.servers());
    etcd.set_answer_limit(kWithdrawal);
    etcd.revoke(lease_);
  } catch (const std::exception& error) {  // the lease ends by itself
    log_debug("{} was left in etcd: {}", key_.name, error.what());
  }
}

}  // namespace trireme
