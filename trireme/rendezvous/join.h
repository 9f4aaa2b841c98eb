// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/store/store.h"

// How ranks meet in a store that they can all reach, and how they leave it. Keys:
//   world_size        what the first rank said; all must say the same
//   rank/<r>          "<pid> <host> <token>" of the process that is rank r; the first one keeps it
//   joined            a count
//   join              "ok" from the last rank that came, or why the first rank that gave up did
//   left/<r>          rank r has left in order
// All ranks see the one verdict under "join".
namespace trireme {

struct Member {
  int64_t pid = 0;
  std::string host;
};
/// Who rank r is; nullopt: it has not joined.
TRIREME_API std::optional<Member> member(Store& store, int rank);
TRIREME_API bool has_left(Store& store, int rank);

namespace detail {

enum class Seat {
  ours,
  left,  // an earlier process was this rank in this table and left it
};
/// Takes the place of `rank`. UsageError when another process holds it, or when the ranks disagree
/// on the world's size.
Seat take_seat(Store& store, int rank, int world_size);

/// get(); where the key is not there after three seconds, `say` tells once what is awaited.
TRIREME_API std::string get_or_say(Store& store, const std::string& key, Deadline deadline,
                                   const std::function<void()>& say);

/// Waits until all ranks have taken theirs; after three seconds the lowest of those that wait says
/// in the log for whom. Timeout naming the missing ranks and how long it waited, on every rank.
/// `turned_away`: who was meanwhile, where this process knows it, in words.
void wait_for_world(Store& store, int rank, int world_size, Deadline deadline,
                    const std::function<std::string()>& turned_away = {});

/// "1, 3–7": for texts.
TRIREME_API std::string name_ranks(const std::vector<int>& ranks);

/// A member's own store: says left/<r> when it is destroyed, and waits no longer than two seconds
/// for that.
class MemberStore final : public Store {
 public:
  MemberStore(std::unique_ptr<Store> inner, int rank);
  ~MemberStore() override;

  void set(const std::string& key, std::string_view value) override { inner_->set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    return inner_->get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return inner_->try_get(key);
  }
  int64_t add(const std::string& key, int64_t delta) override { return inner_->add(key, delta); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return inner_->compare_set(key, expected, desired);
  }
  void wait(const std::vector<std::string>& keys, Deadline deadline) override {
    inner_->wait(keys, deadline);
  }
  std::vector<std::string> missing(const std::vector<std::string>& keys) override {
    return inner_->missing(keys);
  }
  bool delete_key(const std::string& key) override { return inner_->delete_key(key); }
  int64_t count_keys(std::string_view prefix) override { return inner_->count_keys(prefix); }
  void set_will(const std::string& key, std::string_view value) override {
    inner_->set_will(key, value);
  }
  void clear_will() override { inner_->clear_will(); }
  void set_answer_limit(Duration limit) override { inner_->set_answer_limit(limit); }
  std::unique_ptr<Store> clone(Deadline deadline) override { return inner_->clone(deadline); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<Store> inner_;
  int rank_;
};

}  // namespace detail
}  // namespace trireme
