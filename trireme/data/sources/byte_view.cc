// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/byte_view.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {

void ByteView::append(std::span<const uint8_t> bytes, bool ends_file) {
  if (bytes.empty() && !ends_file) return;
  pieces_.push_back({bytes, ends_file, size_});
  size_ += pieces_.back().length();
}

void ByteView::read(int64_t offset, std::span<uint8_t> out) const {
  check<UsageError>(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= size_,
                    "corpus: bytes {} to {} are outside its {} bytes", offset,
                    offset + static_cast<int64_t>(out.size()), size_);
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](int64_t at, const Piece& p) { return at < p.begin; });
  for (--piece; !out.empty(); ++piece) {
    const auto skip = static_cast<size_t>(offset - piece->begin);
    if (skip < piece->bytes.size()) {
      const size_t n = std::min(out.size(), piece->bytes.size() - skip);
      std::memcpy(out.data(), piece->bytes.data() + skip, n);
      out = out.subspan(n);
    }
    if (piece->ends_file && !out.empty()) {
      out[0] = file_end_;
      out = out.subspan(1);
    }
    offset = piece->begin + piece->length();
  }
}

std::pair<ByteView, ByteView> ByteView::split(int64_t at) const {
  ByteView first(file_end_), rest(file_end_);
  for (const auto& piece : pieces_) {
    const auto cut = static_cast<size_t>(
        std::clamp<int64_t>(at - piece.begin, 0, static_cast<int64_t>(piece.bytes.size())));
    const bool end_first = piece.ends_file && at - piece.begin >= piece.length();
    if (cut > 0 || end_first) first.append(piece.bytes.first(cut), end_first);
    if (piece.begin + piece.length() > at) rest.append(piece.bytes.subspan(cut), piece.ends_file);
  }
  return {std::move(first), std::move(rest)};
}

}  // namespace trireme
