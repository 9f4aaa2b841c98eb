// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

// Which block of which window serves a body. Pure: numbers in, numbers out.
namespace trireme::channel::local {

struct Block {
  uint32_t window = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// Blocks below kOwnWindow share windows of kSharedWindow bytes and stay in them for good; larger
/// ones have a window each, which can be given up for one of another size. A block that was given
/// back serves the next request of its size, or of up to a fifth less.
class BlockBook {
 public:
  static constexpr uint64_t kOwnWindow = uint64_t{1} << 20;
  static constexpr uint64_t kSharedWindow = uint64_t{4} << 20;

  /// `most`: bytes of all windows together.
  explicit BlockBook(uint64_t most) : most_(most) {}

  /// A free block of at least so many bytes, if the windows have one.
  std::optional<Block> take(uint64_t bytes);
  void give(const Block& block);

  /// What must be done before take(bytes) can succeed: windows that are free are dropped, and one
  /// is begun and added. Nothing: it would be beyond the bound.
  struct Growth {
    std::vector<uint32_t> dropped;
    uint64_t bytes = 0;   // of the new window
    bool shared = false;  // by small blocks
  };
  std::optional<Growth> growth_for(uint64_t bytes);
  void drop(uint32_t window);
  /// Its bytes count from now on, until it is given up or, once it was added, dropped.
  void begin(const Growth& growth) { total_ += growth.bytes; }
  void give_up(const Growth& growth) { total_ -= growth.bytes; }
  void add(uint32_t window, const Growth& growth);
  uint64_t window_bytes() const { return total_; }

 private:
  static uint64_t rounded(uint64_t bytes);
  static bool serves(const Block& block, uint64_t size);

  uint64_t most_, total_ = 0;
  std::optional<Block> last_;            // that was given back: what comes and goes costs no search
  std::multimap<uint64_t, Block> free_;  // the others, by size
  Block rest_;                           // of the shared window that is carved now
};

}  // namespace trireme::channel::local
