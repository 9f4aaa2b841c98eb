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

/// The interval at which a waiting rank reads the board, at least `least`: each read covers the
/// records of all ranks, and the whole job makes at most about 100,000 requests a second.
inline Duration look_every(int ranks, Duration least) {
  return std::max<Duration>(least, std::chrono::microseconds(10) * ranks * ranks);
}

/// A board on which each rank of a root group publishes one record that all others can read at any
/// time. Use from one thread at a time.
class WaitBoard {
 public:
  virtual ~WaitBoard() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Replaces this rank's record.
  virtual void say(const std::string& record) = 0;
  /// Returns the latest records known here, by rank; "" for none.
  virtual std::vector<std::string> heard() = 0;
  /// Receives pending records, if they would pile up otherwise.
  virtual void sweep() {}
  /// As say(), for a rank that leaves a group. last: it was its last one.
  virtual void say_leaving(const std::string& record, bool /*last*/) { say(record); }
  /// For a rank that leaves its last group: returns the words of the first rank to publish under
  /// this key, which may be this one; "" if none are kept.
  virtual std::string first_to_say(const std::string& /*key*/, const std::string& /*words*/) {
    return "";
  }
  /// False if a rank's last record may not arrive, so that it need not announce that it leaves.
  virtual bool outlives_ranks() const = 0;
  /// True if other ranks do not notice when a program calls exit() with its groups alive, so that
  /// the rank must announce it. Otherwise its connections reveal it.
  virtual bool speaks_at_exit() const { return false; }
};

/// Makes a board under keys of the job's store, with a connection of its own.
std::unique_ptr<WaitBoard> store_board(Store& store, const std::string& group, int rank, int size,
                                       Duration timeout);

/// Makes a board on a store that only these ranks use.
std::unique_ptr<WaitBoard> own_store_board(std::unique_ptr<Store> store, int rank, int size,
                                           bool speaks_at_exit);

/// As store_board(), but connects on first use.
std::unique_ptr<WaitBoard> lazy_store_board(std::shared_ptr<Store> store, const std::string& group,
                                            int rank, int size);

}  // namespace detail
}  // namespace trireme
