// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/strict_json.h"

namespace trireme::interop {
namespace {

/// Its begin and end count from the start of the data, as the header has them.
SafetensorsEntry read_described(const std::string& name, const nlohmann::json& info,
                                const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  check<Corrupt>(info.is_object() && info.size() == 3,
                 "{}: not a description of dtype, shape and data_offsets", where);
  SafetensorsEntry array;
  array.name = name;
  const std::string dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  const Dtype* known = find_dtype(dtype);
  check<Corrupt>(known != nullptr, "{}: dtype '{}' is not one we read", where, dtype);
  array.dtype = known->name;
  array.shape = json_sizes(json_member(info, "shape", where), where, "shape");
  const auto offsets = json_sizes(json_member(info, "data_offsets", where), where, "data_offsets");
  check<Corrupt>(offsets.size() == 2 && offsets[0] <= offsets[1],
                 "{}: data_offsets are not [begin, end]", where);
  array.begin = static_cast<uint64_t>(offsets[0]);
  array.end = static_cast<uint64_t>(offsets[1]);
  uint64_t size = known->size;
  bool empty = false;
  for (int64_t dim : array.shape) empty = empty || dim == 0;
  if (empty) size = 0;
  for (int64_t dim : array.shape)
    check<Corrupt>(empty || !__builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size),
                   "{}: a shape of more than 2^64 bytes", where);
  check<Corrupt>(array.end - array.begin == size, "{}: has {} bytes, its shape needs {}", where,
                 array.end - array.begin, size);
  // What readers of an array may rely on; an empty one could still have lengths beyond it.
  check<Corrupt>(element_count(array.shape) >= 0, "{}: a shape of more than 2^63 elements", where);
  return array;
}

void refuse_names_twice(const std::deque<SafetensorsEntry>& entries, const std::string& where) {
  std::vector<const std::string*> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& e : entries) names.push_back(&e.name);
  const auto less = [](const auto* a, const auto* b) { return *a < *b; };
  std::sort(names.begin(), names.end(), less);
  for (size_t i = 1; i < names.size(); ++i)
    check_first_of_name(*names[i] != *names[i - 1], *names[i], where);
}

}  // namespace

uint64_t safetensors_head_size(std::span<const uint8_t> first, uint64_t file_size,
                               const std::string& path) {
  check<Corrupt>(file_size >= 8 && first.size() >= 8,
                 "{}: {} bytes, too few for a safetensors file", path, file_size);
  uint64_t length = 0;
  std::memcpy(&length, first.data(), 8);
  check<Corrupt>(length <= kMostSafetensorsHeader,
                 "{}: says its header has {} bytes; the most is {}", path, length,
                 kMostSafetensorsHeader);
  check<Corrupt>(length <= file_size - 8, "{}: ends inside its header ({} bytes of {})", path,
                 file_size - 8, length);
  return 8 + length;
}

SafetensorsHeader read_safetensors_header(std::span<const uint8_t> bytes, const std::string& path) {
  return read_safetensors_header(bytes.first(safetensors_head_size(bytes, bytes.size(), path)),
                                 bytes.size(), path);
}

SafetensorsHeader read_safetensors_header(std::span<const uint8_t> head, uint64_t file_size,
                                          const std::string& path) {
  SafetensorsEntries found = read_safetensors_entries(head, file_size, path);
  SafetensorsHeader header{found.data, {}, std::move(found.metadata)};
  header.arrays.reserve(found.entries.size());
  for (SafetensorsEntry& e : found.entries) {
    NamedArray& array = header.arrays.emplace_back();
    array.name = std::move(e.name), array.dtype = e.dtype, array.file = path;
    array.strides = row_major(e.shape), array.shape = std::move(e.shape);
    array.begin = e.begin, array.end = e.end;
  }
  return header;
}

SafetensorsEntries read_safetensors_entries(std::span<const uint8_t> head, uint64_t file_size,
                                            const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, head.size() - 8);
  check<Corrupt>(!text.empty() && text.front() == '{', "{}: the header does not begin with '{{'",
                 path);

  SafetensorsEntries header;
  header.data = head.size();
  const std::string where = path + ": header";
  bool has_metadata = false;
  const auto add = [&](const auto&, const auto&, const std::string& name, const auto& info) {
    if (name != "__metadata__") {
      header.entries.push_back(read_described(name, info, path));
      return;
    }
    check_first_of_name(!std::exchange(has_metadata, true), name, where);
    check<Corrupt>(info.is_object(), "{}: __metadata__ is not an object", path);
    for (const auto& [key, value] : info.items())
      header.metadata[key] = json_text(value, path, "a value of __metadata__");
  };
  for_each_json_member(text, where, 4, 1, add);
  refuse_names_twice(header.entries, where);
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  const uint64_t present = file_size - header.data;
  for (SafetensorsEntry& array : header.entries) {
    check<Corrupt>(
        array.begin == at,
        "{}: tensor '{}' begins at byte {} of the data, but the one before it ends at {}", path,
        array.name, array.begin, at);
    at = array.end;
    array.begin += header.data;
    array.end += header.data;
  }
  check<Corrupt>(at == present, "{}: has {} bytes of data, but its header declares {}{}", path,
                 present, at, at > present ? ": it was cut short" : "");
  return header;
}

}  // namespace trireme::interop
