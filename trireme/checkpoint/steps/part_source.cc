// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/part_source.h"

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {

void PartSource::take_head(std::span<const uint8_t> head, const IndexFile& expected) {
  check<Corrupt>(Checksum::of(head.data(), head.size()) == expected.head,
                 "{}: the checksum of its header does not fit", path_);
  header_ = interop::read_safetensors_header(head, expected.size, path_);
  for (size_t i = 0; i < header_.arrays.size(); ++i) by_name_[header_.arrays[i].name] = i;
}

const interop::NamedArray& PartSource::find(const IndexPart& part, const std::string& dtype) const {
  const std::string key = place_of(part.slice.name).key;
  const auto found = by_name_.find(key);
  check<Corrupt>(found != by_name_.end() &&
                     header_.arrays[found->second].shape == part.slice.lengths &&
                     header_.arrays[found->second].dtype == dtype,
                 "{}: tensor '{}' is missing or not as the index says", path_, key);
  return header_.arrays[found->second];
}

}  // namespace trireme
