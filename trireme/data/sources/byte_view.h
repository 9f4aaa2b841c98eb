// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// Pieces of memory read as one line of bytes, each file followed by a byte that is in no memory, a
/// newline unless another is given. Copies nothing; the memory must outlive the view.
class TRIREME_API ByteView {
 public:
  explicit ByteView(uint8_t file_end = '\n') : file_end_(file_end) {}
  /// `ends_file`: that byte follows.
  void append(std::span<const uint8_t> bytes, bool ends_file = true);
  int64_t size() const { return size_; }
  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }
  /// Bytes [offset, offset + out.size()), which must be inside.
  void read(int64_t offset, std::span<uint8_t> out) const;
  /// The first `at` bytes, and the rest.
  std::pair<ByteView, ByteView> split(int64_t at) const;

 private:
  struct Piece {
    std::span<const uint8_t> bytes;
    bool ends_file;
    int64_t begin;  // in the line
    int64_t length() const { return static_cast<int64_t>(bytes.size()) + ends_file; }
  };
  uint8_t file_end_;
  std::vector<Piece> pieces_;
  int64_t size_ = 0;
};

}  // namespace trireme
