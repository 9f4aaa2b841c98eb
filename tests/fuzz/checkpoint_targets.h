// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/fuzz/python_targets.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/load_plan.h"
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"
#include "trireme/interop/safetensors_header.h"

// Fuzz targets for the files of a step folder, as those of targets.h.
namespace trireme::fuzz {

/// The text with the checksum that chance would never give it.
inline std::string with_its_checksum(std::string text) {
  constexpr std::string_view kBefore = "\"checksum\": \"xxh3:";
  const size_t at = text.find(kBefore);
  if (at == std::string::npos || text.size() < at + kBefore.size() + 16) return text;
  const size_t digits = at + kBefore.size();
  std::fill_n(text.begin() + static_cast<long>(digits), 16, '0');
  text.replace(digits, 16, Checksum::of(text.data(), text.size()));
  return text;
}

/// The first byte: 0 for an index as it is, else it gets its checksum first.
inline void checkpoint_index(std::string_view bytes) {
  if (bytes.empty()) return;
  std::string text(bytes.substr(1));
  if (bytes[0] != 0) text = with_its_checksum(std::move(text));
  CheckpointIndex index;
  if (!accepted([&] { index = parse_index(text, "fuzz"); })) return;
  for (const auto& [name, tensor] : index.tensors) {
    if (tensor.parts.empty()) throw std::logic_error("a tensor without parts");
    const std::vector<int64_t>& shape = tensor.shape();
    int64_t planned = 0;
    for (const Copy& copy : plan_load(tensor, Slice::whole(name, shape))) {
      if (copy.part >= tensor.parts.size()) throw std::logic_error("a copy from no part");
      if (copy.from < 0 || copy.from_end() > tensor.parts[copy.part].slice.numel())
        throw std::logic_error("a copy reads beyond its part");
      planned += copy.numel();
    }
    if (planned != Slice::whole(name, shape).numel())
      throw std::logic_error("the parts are not the whole");
  }
  if (index.version != CheckpointIndex::kVersion) return;
  const std::string once = index_text(index);
  if (index_text(parse_index(once, "fuzz, written")) != once)
    throw std::logic_error("an index is written otherwise than it is read");
}

/// The first byte: 0 for memory as it is; else its head gets a checksum, and so do the texts that
/// it names.
inline void snapshot(std::string_view bytes) {
  if (bytes.empty()) return;
  std::string memory(bytes.substr(1));
  if (bytes[0] != 0 && memory.size() >= 4096) {
    const auto number = [&](size_t i) {
      uint64_t v;
      std::memcpy(&v, memory.data() + 16 + 8 * i, 8);
      return v;
    };
    const auto put = [&](size_t i, uint64_t v) { std::memcpy(memory.data() + 16 + 8 * i, &v, 8); };
    for (size_t text : {size_t{1}, size_t{4}})
      if (number(text) <= memory.size() && number(text + 1) <= memory.size() - number(text))
        put(text + 2, Checksum::number_of(memory.data() + number(text), number(text + 1)));
    put(11, Checksum::number_of(memory.data() + 16, 88));
  }
  const std::span span(reinterpret_cast<const uint8_t*>(memory.data()), memory.size());
  std::optional<ParsedSnapshot> parsed;
  if (!accepted([&] { parsed = parse_snapshot(span); }) || !parsed) return;
  uint64_t blocks = 0;
  for (const auto& [file, at, count, offset] : parsed->plan.writes) {
    blocks += blocks_in_write(count);
    if (parsed->layout.data_at + static_cast<uint64_t>(offset + count) > memory.size())
      throw std::logic_error("a write from beyond the memory");
  }
  if (parsed->layout.sums_at + 8 * blocks > memory.size())
    throw std::logic_error("checksums beyond the memory");
}

inline void safetensors(std::string_view bytes) {
  interop::SafetensorsHeader header;
  if (!accepted([&] { header = interop::read_safetensors_header(as_bytes(bytes), "fuzz"); }))
    return;
  uint64_t at = header.data;
  for (const auto& array : header.arrays) {
    if (array.bytes() > bytes.size() - at) throw std::logic_error("a tensor beyond its file");
    at += array.bytes();
  }
  if (at != bytes.size()) throw std::logic_error("bytes that are in no tensor");
}

}  // namespace trireme::fuzz
