// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/wait_board.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

constexpr Duration kAnswer = std::chrono::seconds(2);

std::string key_of(const std::string& group, int rank) {
  return fmt::format("waits/{}/{}", group, rank);
}

class StoreBoard final : public WaitBoard {
 public:
  /// Its user has a call in flight, which an unresponsive store must not delay for long.
  StoreBoard(std::unique_ptr<Store> store, const std::string& group, int rank, int size,
             bool speaks_at_exit)
      : store_(std::move(store)),
        rank_(rank),
        speaks_at_exit_(speaks_at_exit),
        said_(static_cast<size_t>(size)) {
    store_->set_answer_limit(kAnswer);
    for (int r = 0; r < size; ++r) keys_.push_back(key_of(group, r));
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(keys_.size()); }
  void say(const std::string& record) override {
    said_[static_cast<size_t>(rank_)] = record;
    store_->set(keys_[static_cast<size_t>(rank_)], record);
  }
  std::vector<std::string> heard() override {
    const auto absent = store_->missing(keys_);
    for (size_t r = 0; r < keys_.size(); ++r)
      if (r != static_cast<size_t>(rank_) &&
          std::find(absent.begin(), absent.end(), keys_[r]) == absent.end())
        said_[r] = store_->try_get(keys_[r]).value_or("");
    return said_;
  }
  std::string first_to_say(const std::string& key, const std::string& words) override {
    return store_->compare_set(key, "", words);
  }
  bool outlives_ranks() const override { return true; }
  bool speaks_at_exit() const override { return speaks_at_exit_; }

 private:
  const std::unique_ptr<Store> store_;
  const int rank_;
  const bool speaks_at_exit_;
  std::vector<std::string> keys_, said_;
};

class LazyBoard final : public WaitBoard {
 public:
  LazyBoard(std::shared_ptr<Store> store, std::string group, int rank, int size)
      : store_(std::move(store)), group_(std::move(group)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void say(const std::string& record) override { board().say(record); }
  std::vector<std::string> heard() override { return board().heard(); }
  // Not through a connection of its own: the store's server may accept no new ones any more.
  void say_leaving(const std::string& record, bool last) override {
    if (last) store_->set_answer_limit(kAnswer);
    if (board_) return board_->say(record);
    store_->set(key_of(group_, rank_), record);
  }
  std::string first_to_say(const std::string& key, const std::string& words) override {
    store_->set_answer_limit(kAnswer);
    return store_->compare_set(key, "", words);
  }
  bool outlives_ranks() const override { return true; }

 private:
  WaitBoard& board() {
    if (!board_) board_ = store_board(*store_, group_, rank_, size_, kAnswer);
    return *board_;
  }

  const std::shared_ptr<Store> store_;
  const std::string group_;
  const int rank_, size_;
  std::unique_ptr<WaitBoard> board_;
};

}  // namespace

std::unique_ptr<WaitBoard> lazy_store_board(std::shared_ptr<Store> store, const std::string& group,
                                            int rank, int size) {
  return std::make_unique<LazyBoard>(std::move(store), group, rank, size);
}

std::unique_ptr<WaitBoard> store_board(Store& store, const std::string& group, int rank, int size,
                                       Duration timeout) {
  return std::make_unique<StoreBoard>(store.clone(Deadline::after(timeout)), group, rank, size,
                                      /*speaks_at_exit=*/false);
}

std::unique_ptr<WaitBoard> own_store_board(std::unique_ptr<Store> store, int rank, int size,
                                           bool speaks_at_exit) {
  return std::make_unique<StoreBoard>(std::move(store), "own", rank, size, speaks_at_exit);
}

}  // namespace trireme::detail
