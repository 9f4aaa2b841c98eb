// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/part_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {
namespace {

std::string shape_text(std::string_view dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

}  // namespace

void PartSource::take_head(std::span<const uint8_t> head, const IndexFile& expected) {
  const std::string sum = Checksum::of(head.data(), head.size());
  check<Corrupt>(sum == expected.head,
                 "{}: the checksum of its header does not fit: it is {}; the index says {}", path_,
                 sum, expected.head);
  head_size_ = head.size();
  entries_ = interop::read_safetensors_entries(head, expected.size, path_).entries;
  count_ = entries_.size();
  std::sort(entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
}

const interop::SafetensorsEntry& PartSource::find(const IndexPart& part,
                                                  const std::string& dtype) const {
  const std::string key = place_of(part.slice.name).key;
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const auto& e, const auto& name) { return e.name < name; });
  if (found == entries_.end() || found->name != key)
    fail<Corrupt>("{}: tensor '{}' is missing; the index says {}", path_, key,
                  shape_text(dtype, part.slice.lengths));
  if (found->shape != part.slice.lengths || found->dtype != dtype)
    fail<Corrupt>("{}: tensor '{}' is {}; the index says {}", path_, key,
                  shape_text(found->dtype, found->shape), shape_text(dtype, part.slice.lengths));
  return *found;
}

}  // namespace trireme
