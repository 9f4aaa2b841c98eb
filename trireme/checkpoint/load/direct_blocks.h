// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/opened.h"
#include "trireme/checkpoint/load/read_deal.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/window_reader.h"

namespace trireme {

/// Blocks that are read straight to where they belong and compared on the way, so that their bytes
/// move once. Of a load without LoadOptions::check_first.
class DirectBlocks {
 public:
  /// None.
  DirectBlocks() = default;
  enum class Through {
    windows,         // of our own, past the page cache: for blocks that this rank alone wants
    the_page_cache,  // which then has them for the other ranks of the host, too
  };
  /// Of the plan's blocks: those that lie as a whole in memory that is filled in place
  /// (TensorSource::in_place). Compares those of `own`; the others are compared by who reads the
  /// same bytes. `opened` and `plan` must outlive it.
  DirectBlocks(const OpenedStep& opened, const LoadPlan& plan, const std::vector<BlockRange>& own,
               Through through);

  /// As joined() gives them.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  /// Whether the plan's tensor with this number has any.
  bool has(size_t tensor) const { return !pieces_.empty() && first_[tensor] < first_[tensor + 1]; }
  /// Those of the plan's tensor with this number, to its memory, while the disk is at the next
  /// ones. By one thread, each tensor once, in the plan's order. Corrupt, ResourceError, and what
  /// WindowReader::next() throws: the memory is part old and part new.
  void read(size_t tensor, uint8_t* to);
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
  void find_windows();
  void take(const Piece& piece, uint8_t* to);
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
  std::vector<FileWindow> windows_;       // large ones
  std::unique_ptr<WindowReader> reader_;  // of them, if it is not through the page cache
  std::span<const uint8_t> window_;       // the bytes of …
  size_t window_number_ = kNoWindow;
};

}  // namespace trireme
