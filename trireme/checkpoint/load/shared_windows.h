// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/checkpoint/steps/window_reader.h"
#include "trireme/comm/group.h"

namespace trireme {

/// Windows of files that a rank takes one after the other. Those that all ranks of a group take are
/// read by one of them, past the page cache, and broadcast to the others: each rank in turn.
class SharedWindows {
 public:
  struct Window {
    FileWindow bytes;
    bool together;  // all ranks take it, and have the same windows before it that are together
  };
  /// Without a group no window is together. std::bad_alloc.
  SharedWindows(const std::vector<Window>& windows, std::optional<Group> group);

  /// Whether the next window is read by this rank, which then is the one to compare it.
  bool reads_next() const { return turns_[taken_].reader == rank_; }
  /// The bytes of the next window, valid until the next call. Throws what WindowReader::next()
  /// throws, and what went wrong in the group. The others get bytes of a window that could not be
  /// read: who read it has to tell them.
  std::span<const uint8_t> take();
  /// The same to memory of the caller's. Of a window that another rank reads.
  void take_to(uint8_t* to) { pass_on(to); }
  /// So many windows are behind this rank in all: of those that it has not taken it takes part in
  /// what the others wait for. Throws nothing.
  void pass_over(size_t windows) noexcept;

 private:
  struct Turn {
    size_t size;  // bytes
    bool together;
    int reader;
  };
  static std::vector<Turn> turns_of(const std::vector<Window>& windows, int rank, int size);
  void pass_on(const uint8_t* bytes);

  const int rank_;
  std::optional<Group> group_;
  const std::vector<Turn> turns_;  // of each window
  WindowReader reader_;            // of those that this rank reads
  std::vector<uint8_t> received_;
  size_t taken_ = 0;
  bool group_failed_ = false;
};

}  // namespace trireme
