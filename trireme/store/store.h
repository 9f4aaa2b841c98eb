// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// A small table of keys and values that all ranks of a job see: how they meet, name sockets and
/// agree on small things. Values are bytes. Every call is atomic over all clients. Threads: one
/// thread at a time per object, unless the class says otherwise; clone() gives another connection.
/// Failure: Timeout (a wait; it names the missing keys), PeerLost (the process that keeps the table
/// is gone), UsageError (a key or value too long, add() on what is no number), ResourceError (the
/// table is full). Only PeerLost, and a Timeout that says that the store itself does not answer,
/// end the object's use.
class TRIREME_API Store {
 public:
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = (size_t{16} << 20) - (size_t{64} << 10);

  virtual ~Store();

  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits until the key is there.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  /// Adds to a decimal number (0 where there is no key) and returns the sum.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  /// Where the value equals `expected` (a missing key equals ""), it becomes `desired`. Returns the
  /// value after that, "" for a key that is still missing.
  virtual std::string compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) = 0;
  /// Waits until all keys are there.
  virtual void wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  /// Those of the keys that are not there now.
  virtual std::vector<std::string> missing(const std::vector<std::string>& keys) = 0;
  bool check(const std::vector<std::string>& keys) { return missing(keys).empty(); }
  /// Whether there was something to delete.
  virtual bool delete_key(const std::string& key) = 0;
  /// Keys that begin with `prefix`; "" counts all.
  virtual int64_t count_keys(std::string_view prefix) = 0;
  int64_t num_keys() { return count_keys(""); }

  /// A last will: should this object's connection end without a goodbye (its process is killed, its
  /// host gone, the link cut), `key` gets `value`, within a second or, where only silence tells,
  /// about four. One will an object; the next set_will() replaces it. A stopped process still has
  /// its connection. Where the table is in this process's own memory there is nothing to keep: it
  /// ends with the process.
  virtual void set_will(const std::string& key, std::string_view value) = 0;
  /// No will any more, as after the object's destruction, which says goodbye.
  virtual void clear_will() = 0;

  /// How long a call may go unanswered, where it does not itself wait for others; a wait may be
  /// this much late, or 5 s. Past it: Timeout, and this object is of no use any more. 30 s unless
  /// set; nothing where the table is in this process's memory. A connection that breaks is noticed
  /// without.
  virtual void set_answer_limit(Duration) {}

  /// The same table through a connection of its own, for another thread. Without the will.
  virtual std::unique_ptr<Store> clone(Deadline deadline) = 0;
  /// "tcp://10.0.0.1:29501", "unix:@…", "memory": for texts.
  virtual std::string describe() const = 0;
};

/// Another store's keys under "prefix/": jobs, attempts and groups do not see each other's. The
/// other store lives as long as this; its will is shared by all prefixes on it.
class TRIREME_API PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> inner, std::string prefix);

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  std::vector<std::string> missing(const std::vector<std::string>& keys) override;
  bool delete_key(const std::string& key) override;
  int64_t count_keys(std::string_view prefix) override;
  void set_will(const std::string& key, std::string_view value) override;
  void clear_will() override;
  void set_answer_limit(Duration limit) override { inner_->set_answer_limit(limit); }
  std::unique_ptr<Store> clone(Deadline deadline) override;
  std::string describe() const override;

 private:
  std::string under(const std::string& key) const;
  std::vector<std::string> under(const std::vector<std::string>& keys) const;

  std::shared_ptr<Store> inner_;
  std::string prefix_;  // with its '/'
};

namespace detail {
inline constexpr size_t kMaxKeysAtOnce = 65536;
/// UsageError for an empty or too long key, or too many.
void check_key(const std::string& key);
void check_keys(const std::vector<std::string>& keys);
/// UsageError for a value too long.
void check_value(const std::string& key, std::string_view value);
/// "'a', 'b' and 3 more": what a Timeout says.
std::string name_keys(const std::vector<std::string>& keys);
}  // namespace detail

}  // namespace trireme
