// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/shared_windows.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace trireme {
namespace {

template <class Turns>
std::vector<FileWindow> read_by(int rank, const std::vector<SharedWindows::Window>& windows,
                                const Turns& turns) {
  std::vector<FileWindow> own;
  for (size_t i = 0; i < windows.size(); ++i)
    if (turns[i].reader == rank) own.push_back(windows[i].bytes);
  return own;
}

}  // namespace

std::vector<SharedWindows::Turn> SharedWindows::turns_of(const std::vector<Window>& windows,
                                                         int rank, int size) {
  std::vector<Turn> turns;
  for (int turn = 0; const Window& window : windows)
    turns.push_back({static_cast<size_t>(window.bytes.size), window.together,
                     window.together ? std::exchange(turn, (turn + 1) % size) : rank});
  return turns;
}

SharedWindows::SharedWindows(const std::vector<Window>& windows, std::optional<Group> group)
    : rank_(group ? group->rank() : 0),
      group_(std::move(group)),
      turns_(turns_of(windows, rank_, group_ ? group_->size() : 1)),
      reader_(read_by(rank_, windows, turns_)) {
  size_t largest = 0;
  for (const Turn& turn : turns_)
    if (turn.together) largest = std::max(largest, turn.size);
  received_.resize(largest);
}

void SharedWindows::pass_on(const uint8_t* bytes) {
  const Turn& turn = turns_[taken_++];
  const at::Tensor window =
      at::from_blob(const_cast<uint8_t*>(bytes), {static_cast<int64_t>(turn.size)}, at::kByte);
  try {
    group_->broadcast(window, turn.reader).wait();
  } catch (...) {
    group_failed_ = true;
    throw;
  }
}

std::span<const uint8_t> SharedWindows::take() {
  if (!turns_[taken_].together) {
    ++taken_;
    return reader_.next();
  }
  std::span<const uint8_t> bytes = std::span(received_).first(turns_[taken_].size);
  std::exception_ptr failure;
  if (reads_next()) try {
      bytes = reader_.next();
    } catch (...) {
      failure = std::current_exception();
    }
  pass_on(bytes.data());
  if (failure) std::rethrow_exception(failure);
  return bytes;
}

void SharedWindows::pass_over(size_t windows) noexcept {
  while (taken_ < windows && !group_failed_) {
    if (!turns_[taken_].together)
      ++taken_;
    else
      try {
        pass_on(received_.data());
      } catch (...) {  // the group says it again in the next call
      }
  }
}

}  // namespace trireme
