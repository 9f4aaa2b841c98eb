// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme {

class Store;

namespace detail {

/// A rank that waits for this long reports it, once.
inline constexpr Duration kReportAfter = std::chrono::seconds(3);

/// How often a rank that waits reads the board, `least` or less often: each look reads all ranks'
/// words, and the whole job asks some 100,000 times a second at most.
inline Duration look_every(int ranks, Duration least) {
  return std::max<Duration>(least, std::chrono::microseconds(10) * ranks * ranks);
}

/// Where each rank of a root group says one thing at a time that all others can read, whatever they
/// are doing. One thread at a time uses it.
class WaitBoard {
 public:
  virtual ~WaitBoard() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// In place of what this rank said before.
  virtual void say(const std::string& record) = 0;
  /// What the ranks said last, as far as it is here; "": nothing.
  virtual std::vector<std::string> heard() = 0;
  /// Takes in what others said, where it would pile up otherwise.
  virtual void sweep() {}
  /// say(), by a rank that leaves a group. last: it was its last one.
  virtual void say_leaving(const std::string& record, bool /*last*/) { say(record); }
  /// What the first rank said under this key, which may be this one; "": nobody keeps it. By a rank
  /// that leaves its last group.
  virtual std::string first_to_say(const std::string& /*key*/, const std::string& /*words*/) {
    return "";
  }
  /// False: a rank's last words may not arrive, so that it need not say that it leaves.
  virtual bool outlives_ranks() const = 0;
  /// True: nobody misses a rank whose program ends by exit() with its groups alive, so it says then
  /// that it leaves. Elsewhere its connections tell.
  virtual bool speaks_at_exit() const { return false; }
};

/// Under keys of the job's store, through a connection of its own.
std::unique_ptr<WaitBoard> store_board(Store& store, const std::string& group, int rank, int size,
                                       Duration timeout);

/// Through a store that these ranks have to themselves.
std::unique_ptr<WaitBoard> own_store_board(std::unique_ptr<Store> store, int rank, int size,
                                           bool speaks_at_exit);

/// As store_board(), connected when it is used first.
std::unique_ptr<WaitBoard> lazy_store_board(std::shared_ptr<Store> store, const std::string& group,
                                            int rank, int size);

}  // namespace detail
}  // namespace trireme
