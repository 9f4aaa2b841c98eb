// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/store/store.h"

// Workers by name and rank, in the job's store. Keys, under "rpc/<generation>/":
//   members      how many there have been; each has a number, from 1 on
//   member/<i>   an encoded Member
//   name/<name>  the number of the one that has this name, or had it last
//   rank/<r>     the same
//   done/<i>     "done": it makes no more calls; "left"; "gone": its process ended without a word
// A name is free again once the one that had it has left or is gone.
namespace trireme::rpc::detail {

struct Member {
  int64_t number = 0;
  std::string name = {};
  int64_t rank = -1;  // -1: it is no rank of the job
  std::string host = {};
  int64_t pid = 0;
  std::vector<std::pair<std::string, std::string>> addresses = {};  // kind of road, and where
  TRIREME_FIELDS(number, name, rank, host, pid, addresses)
};

/// Threads: any; a call that waits holds up the others for a tenth of a second at most.
class Registry {
 public:
  /// `store` is this worker's own connection.
  Registry(std::shared_ptr<Store> store, uint64_t generation);

  /// A number for a worker that is about to come.
  int64_t new_number();
  /// UsageError: another worker has the name or the rank. `process_rank`: where another worker of
  /// this process has the rank, this one goes without.
  void join(const Member& self, bool process_rank = false);
  /// Waits for a worker that is there. Timeout; names those that are there.
  Member find(const std::string& name, Deadline deadline);
  Member find(int rank, Deadline deadline);
  /// None: it is no more.
  std::optional<Member> find_number(int64_t number);
  std::vector<Member> present();

  /// This worker makes no more calls.
  void done();
  /// Waits until the ranks below `world` have come, and all workers have said so or are no more.
  /// Timeout; names the others.
  void wait_for_all(int world, Deadline deadline);
  void leave();

 private:
  std::optional<Member> now(const std::string& key);
  Member find_at(const std::string& key, const std::string& called, Deadline deadline);
  /// False: `self` goes without it, since another worker of its process has it.
  bool take(const std::string& key, const std::string& called, const Member* may_be_of = nullptr);
  std::vector<std::pair<Member, std::string>> all();
  std::vector<int> absent_ranks(int world);
  std::optional<std::string> get(const std::string& key);

  std::mutex mutex_;  // the store is one thread's at a time
  const std::shared_ptr<Store> store_;
  int64_t number_ = 0;
};

}  // namespace trireme::rpc::detail
