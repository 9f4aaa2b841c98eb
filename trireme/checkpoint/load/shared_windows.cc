// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/shared_windows.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/error.h"

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
      reader_(read_by(rank_, windows, turns_)) {}

// Whether the bytes that `bytes` points to are those of the next window now. Of errors that are not
// the group's own, the others learn the text.
bool SharedWindows::pass_on(const uint8_t* bytes, bool is_there) {
  const Turn& turn = turns_[taken_++];
  is_there_ = is_there;
  try {
    group_->broadcast(at::from_blob(&is_there_, {1}, at::kByte), turn.reader).wait();
    if (is_there_ == 0) return false;
    const at::Tensor window =
        at::from_blob(const_cast<uint8_t*>(bytes), {static_cast<int64_t>(turn.size)}, at::kByte);
    group_->broadcast(window, turn.reader).wait();
    return true;
  } catch (const Error&) {
    group_failed_ = true;
    throw;
  } catch (const std::exception& e) {
    group_failed_ = true;
    group_->abort(e.what());
    throw;
  }
}

std::span<const uint8_t> SharedWindows::take() {
  if (!turns_[taken_].together) {
    ++taken_;
    return reader_.next();
  }
  const size_t size = turns_[taken_].size;
  if (!reads_next()) {
    if (!received_) received_ = LargePages(WindowReader::kWindow);
    auto* const to = reinterpret_cast<uint8_t*>(received_.data());
    take_to(to);
    return {to, size};
  }
  std::span<const uint8_t> bytes;
  std::exception_ptr failure;
  try {
    bytes = reader_.next();
  } catch (...) {
    failure = std::current_exception();
  }
  pass_on(bytes.data(), !failure);
  if (failure) std::rethrow_exception(failure);
  return bytes;
}

void SharedWindows::take_to(uint8_t* to) {
  if (!pass_on(to, false)) throw WindowNotRead();
}

void SharedWindows::pass_over(size_t windows) noexcept {
  while (taken_ < windows && !group_failed_) {
    if (!turns_[taken_].together) {
      ++taken_;
      continue;
    }
    try {
      // What comes from a rank that reads on goes nowhere, but it comes.
      if (!reads_next() && !received_) received_ = LargePages(WindowReader::kWindow);
      pass_on(reinterpret_cast<uint8_t*>(received_.data()), false);
    } catch (...) {  // the group says it again in the next call
      group_failed_ = true;
    }
  }
}

}  // namespace trireme
