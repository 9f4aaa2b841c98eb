// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {

struct SafetensorsFile::Parsed {
  std::string path;
  MappedFile file;
  uint64_t head = 0;
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::unordered_map<std::string, size_t> by_name;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : parsed_(std::make_unique<Parsed>(Parsed{path, MappedFile(path), 0, {}, {}, {}})) {
  auto header = interop::read_safetensors_header(parsed_->file.bytes(), path);
  parsed_->head = header.data;
  parsed_->metadata = std::move(header.metadata);
  for (interop::NamedArray& array : header.arrays) {
    const auto* known = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                     [&](const auto& d) { return array.dtype == d.name; });
    check<Corrupt>(known != kSafetensorsDtypes.end(),
                   "{}: tensor '{}': dtype '{}' is not one we read", path, array.name, array.dtype);
    parsed_->by_name[array.name] = parsed_->entries.size();
    parsed_->entries.push_back({std::move(array.name), known->dtype, std::move(array.shape),
                                array.begin - header.data, array.end - header.data});
  }
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
