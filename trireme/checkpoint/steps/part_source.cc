// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/part_source.h"

#include <fmt/ranges.h>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {
namespace {

std::string shape_text(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

}  // namespace

void PartSource::take_head(std::span<const uint8_t> head, const IndexFile& expected) {
  const std::string sum = Checksum::of(head.data(), head.size());
  check<Corrupt>(sum == expected.head,
                 "{}: the checksum of its header does not fit: it is {}; the index says {}", path_,
                 sum, expected.head);
  header_ = interop::read_safetensors_header(head, expected.size, path_);
  for (size_t i = 0; i < header_.arrays.size(); ++i) by_name_[header_.arrays[i].name] = i;
}

const interop::NamedArray& PartSource::find(const IndexPart& part, const std::string& dtype) const {
  const std::string key = place_of(part.slice.name).key;
  const auto found = by_name_.find(key);
  const std::string expected = shape_text(dtype, part.slice.lengths);
  check<Corrupt>(found != by_name_.end(), "{}: tensor '{}' is missing; the index says {}", path_,
                 key, expected);
  const interop::NamedArray& array = header_.arrays[found->second];
  check<Corrupt>(array.shape == part.slice.lengths && array.dtype == dtype,
                 "{}: tensor '{}' is {}; the index says {}", path_, key,
                 shape_text(array.dtype, array.shape), expected);
  return array;
}

}  // namespace trireme
