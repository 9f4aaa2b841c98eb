// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wait_board.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

class StoreBoard final : public WaitBoard {
 public:
  StoreBoard(std::unique_ptr<Store> store, const std::string& group, int rank, int size)
      : store_(std::move(store)), rank_(rank), said_(static_cast<size_t>(size)) {
    for (int r = 0; r < size; ++r) keys_.push_back(fmt::format("waits/{}/{}", group, r));
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
  bool outlives_ranks() const override { return true; }

 private:
  const std::unique_ptr<Store> store_;
  const int rank_;
  std::vector<std::string> keys_, said_;
};

}  // namespace

std::unique_ptr<WaitBoard> store_board(Store& store, const std::string& group, int rank, int size,
                                       Duration timeout) {
  return std::make_unique<StoreBoard>(store.clone(Deadline::after(timeout)), group, rank, size);
}

}  // namespace trireme::detail
