// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/local/control.h"

namespace trireme::local {

/// How the ranks of one group on one host reach each other: their control memory, and memory that
/// all can address. One object per rank, used only by that rank's thread.
class TRIREME_API Host {
 public:
  Host(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Host() = default;
  Host(const Host&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  virtual Control* control(int rank) = 0;
  /// True for threads: every address is valid on all ranks, and a buffer may be freed as soon as
  /// its owner continues.
  virtual bool one_address_space() const = 0;
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* p) = 0;
  /// Fills window, address and flags of a slot for [p, p+bytes).
  virtual void describe(const void* p, size_t bytes, Slot& slot) = 0;
  /// Returns the peer's buffer in this address space. Throws Corrupt if the slot is not within a
  /// window of the peer.
  virtual unsigned char* resolve(int peer, const Slot& slot, size_t bytes) = 0;
  /// Returns false once the peer's process is gone.
  virtual bool alive(int peer) = 0;
  virtual size_t window_bytes() const = 0;

 private:
  const int rank_, size_;
};

/// What ranks as threads of one process share.
class TRIREME_API ThreadWorld {
 public:
  explicit ThreadWorld(int size);
  ~ThreadWorld();
  int size() const { return size_; }
  Control* control(int rank);
  /// Returns the world of a group of `size` of these ranks; each member asks for it once, by the
  /// same name.
  std::shared_ptr<ThreadWorld> child(const std::string& name, int size);

 private:
  int size_;
  std::mutex mutex_;
  struct Child {
    std::shared_ptr<ThreadWorld> world;
    int asked = 0;
  };
  std::map<std::string, Child> children_;  // those that not all members have asked for yet
  std::unique_ptr<unsigned char, void (*)(void*)> memory_;
};
TRIREME_API std::unique_ptr<Host> thread_host(std::shared_ptr<ThreadWorld> world, int rank);

/// How processes find each other: small values by key, from the job's store. `get` waits until the
/// key exists. With the other functions, a rank that gives up or dies while they meet is detected
/// at once instead of at the timeout.
struct Exchange {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key, Deadline)> get;
  std::function<std::optional<std::string>(const std::string& key)> try_get = {};
  /// Sets the key to the value if this process dies; an empty key cancels that.
  std::function<void(const std::string& key, const std::string& value)> will = {};
};
/// Every rank of the group must call it. Throws Timeout naming the missing rank, PeerLost with the
/// text of the rank that gave up, or ResourceError.
TRIREME_API std::unique_ptr<Host> process_host(int rank, int size, const Exchange& exchange,
                                               Deadline deadline);

void init_control(Control* control, int rank, int size, uint64_t generation, size_t bytes);

}  // namespace trireme::local
