// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/opened.h"
#include "trireme/checkpoint/load/read_deal.h"
#include "trireme/checkpoint/load/shared_windows.h"
#include "trireme/checkpoint/load/verify.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/comm/group.h"

namespace trireme {

/// Blocks that are read straight to where they belong and compared on the way, so that their bytes
/// move once. Of a load without LoadOptions::check_first.
class DirectBlocks {
 public:
  /// None.
  DirectBlocks() = default;
  /// Of the plan's blocks: those that lie as a whole in memory that is filled in place
  /// (TensorSource::in_place). Compares those of `share.own`, and what it reads for all; the others
  /// are compared by who reads the same bytes. `opened` and `plan` must outlive it.
  DirectBlocks(const OpenedStep& opened, const LoadPlan& plan, const BlockShare& share);

  /// The windows of blocks that all ranks want: equal on ranks that take the same ones in one
  /// order, with about as much of their own between them.
  std::string windows_of_all() const;
  /// Before the first read(). What one rank alone wants passes through windows of its own, past the
  /// page cache; what all ranks of `group` want is read so by one of them. Without a group, or with
  /// ranks whose windows differ (windows_of_all()), that comes through the page cache, as does what
  /// some ranks want: a rank reads it, and the others find it there. std::bad_alloc.
  void begin(std::optional<Group> group);

  /// As joined() gives them.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  /// Whether the plan's tensor with this number has any.
  bool has(size_t tensor) const { return !pieces_.empty() && first_[tensor] < first_[tensor + 1]; }
  /// Those of the plan's tensor with this number, to its memory, while the disk is at the next
  /// ones. By one thread, each tensor once, in the plan's order. Corrupt, ResourceError, and what
  /// WindowReader::next() throws: the memory is part old and part new.
  void read(size_t tensor, uint8_t* to);
  /// This rank has failed, and its walk is behind so many tensors of the plan: takes part in what
  /// the others wait for. Throws nothing.
  void pass_over(size_t tensors) noexcept;
  /// body(first element, elements) for what is left of a run of elements of a part that lies in
  /// memory filled in place. `each`: bytes of an element.
  template <class Body>
  void for_each_rest(const IndexPart& part, int64_t from, int64_t run, int64_t each,
                     const Body& body) const {
    const BlockRange whole = whole_blocks(part, from, run, each);
    int64_t at = from;
    if (whole.begin < whole.end) {
      const int64_t first = part.first_block, block = block_of(part, each);
      auto range = std::partition_point(blocks_.begin(), blocks_.end(), [&](const BlockRange& r) {
        return r.end <= first + whole.begin;
      });
      for (; range != blocks_.end() && range->begin < first + whole.end; ++range) {
        const int64_t begin = std::max(range->begin - first, whole.begin) * block / each;
        const int64_t end = std::min(range->end - first, whole.end) * block / each;
        if (begin > at) body(at, begin - at);
        at = std::min(end, part.slice.numel());  // the last block is shorter
      }
    }
    if (at < from + run) body(at, from + run - at);
  }

 private:
  struct Piece {
    const PartSource* file;
    uint64_t begin, size;  // in the file
    const IndexPart* part;
    uint64_t number;      // of the block in the part
    int64_t to;           // where it belongs in the tensor's memory
    uint64_t before = 0;  // bytes of all pieces before it
    bool compares = true;
    size_t window = kNoWindow;  // of windows_
  };
  static constexpr size_t kNoWindow = static_cast<size_t>(-1);
  enum class Wanted : uint8_t { alone, by_some, by_all };
  /// Neighbours in a file that are filled one after the other.
  struct Window {
    FileWindow bytes;
    size_t first, last;  // pieces
    Wanted wanted;
    bool read_ahead = false;  // by reader_, else through the page cache
  };
  void find_windows(const BlockShare& share);
  bool is_read_ahead(const Piece& piece) const {
    return piece.window != kNoWindow && windows_[piece.window].read_ahead;
  }
  size_t take(size_t piece, size_t end, uint8_t* to);
  void take(const Piece& piece, uint8_t* to) const;
  void announce(int64_t at);
  void read_each(int64_t begin, int64_t end, uint8_t* to);
  void read(const Piece& piece, uint8_t* to) const;
  void compare(const Piece& piece, const Checksum& checksum) const;
  int64_t block_of(const IndexPart& part, int64_t each) const;  // bytes
  /// Numbers in the part of the blocks that the run has as a whole.
  BlockRange whole_blocks(const IndexPart& part, int64_t from, int64_t run, int64_t each) const;

  const OpenedStep* opened_ = nullptr;
  std::vector<BlockRange> blocks_;
  std::vector<Piece> pieces_;  // in the order of the walk
  std::vector<size_t> first_;  // of each tensor of the plan, and one behind the last
  // Pieces that the disk was told of, from the first on: small tensors would tell it of all that
  // follow them, each anew.
  int64_t announced_ = 0;
  std::vector<Window> windows_;            // large ones
  std::unique_ptr<SharedWindows> reader_;  // of those that are read ahead
  std::span<const uint8_t> window_;        // the bytes of …
  size_t window_number_ = kNoWindow;
  bool window_compares_ = false;
};

}  // namespace trireme
