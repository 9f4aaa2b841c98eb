// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/interop/strict_json.h"

namespace trireme {

struct SafetensorsFile::Parsed {
  std::string path;
  MappedFile file;
  uint64_t head = 0;
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::unordered_map<std::string, size_t> by_name;
};

namespace {

SafetensorsEntry read_entry(const std::string& name, const nlohmann::json& info,
                            const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  check<Corrupt>(info.is_object() && info.size() == 3,
                 "{}: not a description of dtype, shape and data_offsets", where);
  SafetensorsEntry entry;
  entry.name = name;
  const std::string dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  const auto* known = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                   [&](const auto& d) { return dtype == d.name; });
  check<Corrupt>(known != kSafetensorsDtypes.end(), "{}: dtype '{}' is not one we read", where,
                 dtype);
  entry.dtype = known->dtype;
  entry.shape = json_sizes(json_member(info, "shape", where), where, "shape");
  const auto offsets = json_sizes(json_member(info, "data_offsets", where), where, "data_offsets");
  check<Corrupt>(offsets.size() == 2 && offsets[0] <= offsets[1],
                 "{}: data_offsets are not [begin, end]", where);
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  uint64_t size = known->size;
  bool empty = false;
  for (int64_t dim : entry.shape) empty = empty || dim == 0;
  if (empty) size = 0;
  for (int64_t dim : entry.shape)
    check<Corrupt>(empty || !__builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size),
                   "{}: a shape of more than 2^64 bytes", where);
  check<Corrupt>(entry.end - entry.begin == size, "{}: has {} bytes, its shape needs {}", where,
                 entry.end - entry.begin, size);
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : parsed_(std::make_unique<Parsed>(Parsed{path, MappedFile(path), 0, {}, {}, {}})) {
  const auto bytes = parsed_->file.bytes();
  check<Corrupt>(bytes.size() >= 8, "{}: {} bytes, too few for a safetensors file", path,
                 bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  check<Corrupt>(length <= kSafetensorsMaxHeader,
                 "{}: says its header has {} bytes; the most is {}", path, length,
                 kSafetensorsMaxHeader);
  check<Corrupt>(length <= bytes.size() - 8, "{}: ends inside its header ({} bytes of {})", path,
                 bytes.size() - 8, length);
  parsed_->head = 8 + length;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  check<Corrupt>(!text.empty() && text.front() == '{', "{}: the header does not begin with '{{'",
                 path);
  const auto header = parse_strict_json(text, path + ": header", 4);

  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") {
      check<Corrupt>(info.is_object(), "{}: __metadata__ is not an object", path);
      for (const auto& [key, value] : info.items())
        parsed_->metadata[key] = json_text(value, path, "a value of __metadata__");
    } else {
      parsed_->entries.push_back(read_entry(name, info, path));
    }
  }
  auto& entries = parsed_->entries;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  for (const auto& entry : entries) {
    check<Corrupt>(
        entry.begin == at,
        "{}: tensor '{}' begins at byte {} of the data, but the one before it ends at {}", path,
        entry.name, entry.begin, at);
    at = entry.end;
  }
  check<Corrupt>(at == bytes.size() - parsed_->head,
                 "{}: has {} bytes of data, but its header declares {}{}", path,
                 bytes.size() - parsed_->head, at,
                 at > bytes.size() - parsed_->head ? ": it was cut short" : "");
  for (size_t i = 0; i < entries.size(); ++i) parsed_->by_name[entries[i].name] = i;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return parsed_->path; }
const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const { return parsed_->entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return parsed_->metadata;
}
uint64_t SafetensorsFile::size() const { return parsed_->file.bytes().size(); }
std::span<const uint8_t> SafetensorsFile::head() const {
  return parsed_->file.bytes().first(parsed_->head);
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  auto found = parsed_->by_name.find(name);
  return found == parsed_->by_name.end() ? nullptr : &parsed_->entries[found->second];
}

std::span<const uint8_t> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return parsed_->file.bytes().subspan(parsed_->head + entry.begin, entry.end - entry.begin);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  check<UsageError>(entry != nullptr, "{} has no tensor '{}'", path(), name);
  at::Tensor out = at::detail::empty_cpu(entry->shape, entry->dtype);
  const auto from = bytes(*entry);
  if (!from.empty()) std::memcpy(out.data_ptr(), from.data(), from.size());
  return out;
}

}  // namespace trireme
