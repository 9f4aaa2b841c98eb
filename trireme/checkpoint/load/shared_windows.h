// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "trireme/checkpoint/steps/large_pages.h"
#include "trireme/checkpoint/steps/window_reader.h"
#include "trireme/comm/group.h"

namespace trireme {

/// Another rank could not read a window, and has the reason.
struct WindowNotRead : std::exception {
  const char* what() const noexcept override { return "another rank could not read a window"; }
};

/// Windows of files that a rank takes one after the other. Those that all ranks of a group take are
/// read by one of them, past the page cache, and broadcast to the others, behind a byte that says
/// whether they could be read: each rank in turn.
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
  /// throws, WindowNotRead on the other ranks, and what went wrong in the group.
  std::span<const uint8_t> take();
  /// The same to memory of the caller's. Of a window that another rank reads.
  void take_to(uint8_t* to);
  /// So many windows are behind this rank in all: of those that it has not taken it takes part in
  /// what the others wait for, and reads none. Throws nothing.
  void pass_over(size_t windows) noexcept;

 private:
  struct Turn {
    size_t size;  // bytes
    bool together;
    int reader;
  };
  static std::vector<Turn> turns_of(const std::vector<Window>& windows, int rank, int size);
  bool pass_on(const uint8_t* bytes, bool is_there);

  const int rank_;
  std::optional<Group> group_;
  const std::vector<Turn> turns_;  // of each window
  WindowReader reader_;            // of those that this rank reads
  LargePages received_;            // for a window that goes to several places
  uint8_t is_there_ = 0;           // what the reader of a window says of it
  size_t taken_ = 0;
  bool group_failed_ = false;
};

}  // namespace trireme
