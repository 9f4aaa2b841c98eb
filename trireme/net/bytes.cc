// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/bytes.h"

#include "trireme/base/check.h"

namespace trireme::net {

Writer& Writer::string(std::string_view bytes) {
  check<UsageError>(bytes.size() <= UINT32_MAX, "a field of {} bytes does not fit into a message",
                    bytes.size());
  u32(static_cast<uint32_t>(bytes.size()));
  return raw(bytes);
}

std::string_view Reader::raw(size_t bytes) {
  check<Corrupt>(bytes <= rest_.size(), "{}: {} bytes are promised and {} are left", what_, bytes,
                 rest_.size());
  auto out = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return out;
}

uint64_t Reader::get(int bytes) {
  auto from = raw(static_cast<size_t>(bytes));
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
  return value;
}

std::string_view Reader::string(size_t limit) {
  uint32_t bytes = u32();
  check<Corrupt>(bytes <= limit, "{}: a field of {} bytes, at most {}", what_, bytes, limit);
  return raw(bytes);
}

uint32_t Reader::count(size_t least) {
  uint32_t items = u32();
  check<Corrupt>(items <= rest_.size() / least, "{}: {} items are promised and {} bytes are left",
                 what_, items, rest_.size());
  return items;
}

void Reader::finish() const {
  check<Corrupt>(rest_.empty(), "{}: {} bytes after its end", what_, rest_.size());
}

}  // namespace trireme::net
