// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/opened.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {
namespace {

template <class Map>
void keep_prefix(Map& map, const std::string& prefix) {
  std::erase_if(map, [&](const auto& item) { return !item.first.starts_with(prefix); });
}

SafetensorsFile open_file(const std::string& folder, const std::string& name,
                          const IndexFile& expected) {
  const std::string path = folder + "/" + name;
  const std::string fault = fault_at_sight(folder, name, expected);
  check<Corrupt>(fault.empty(), "{} {}", path, fault);
  SafetensorsFile file(path);
  const auto head = file.head();
  check<Corrupt>(Checksum::of(head.data(), head.size()) == expected.head,
                 "{}: the checksum of its header does not fit", path);
  return file;
}

}  // namespace

OpenedStep::OpenedStep(std::string folder, std::string prefix)
    : folder_(std::move(folder)), prefix_(std::move(prefix)) {
  index_ = read_step_index(folder_);
  for (const auto& [name, t] : index_.tensors)
    for (const auto& part : t.parts) ++counts_[part.file];
  keep_prefix(index_.tensors, prefix_);
  keep_prefix(index_.values, prefix_);
}

OpenedStep::OpenedStep(interop::WeightSource source, std::string prefix)
    : folder_(source.path),
      prefix_(std::move(prefix)),
      foreign_(std::make_unique<ForeignWeights>(std::move(source))) {
  index_ = foreign_->index();
  keep_prefix(index_.tensors, prefix_);
}

std::string OpenedStep::described(const std::string& name) const {
  if (foreign_) return foreign_->described(name, index_.tensors.at(name));
  return fmt::format("{}: tensor '{}'", folder_, name);
}

bool OpenedStep::same_values(const std::string& a, const std::string& b) const {
  const IndexTensor &first = index_.tensors.at(a), &second = index_.tensors.at(b);
  if (foreign_) return foreign_->same_values(first, second);
  const auto &x = first.parts, &y = second.parts;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const IndexPart& p, const IndexPart& q) {
                      return p.blocks == q.blocks && p.slice.lengths == q.slice.lengths &&
                             p.slice.offsets == q.slice.offsets;
                    });
}

std::vector<std::string> OpenedStep::notes() const {
  return foreign_ ? foreign_->source().notes : std::vector<std::string>();
}

void OpenedStep::rename(const std::string& from, const std::string& to) {
  std::map<std::string, IndexTensor> all;
  size_t renamed = 0;
  for (auto& [name, t] : index_.tensors) {
    const bool begins = name.starts_with(from);
    renamed += begins;
    const std::string now = begins ? to + name.substr(from.size()) : name;
    check<UsageError>(all.emplace(now, std::move(t)).second,
                      "{}: with '{}' for '{}' two tensors have the name '{}'", folder_, to, from,
                      now);
  }
  check<UsageError>(renamed > 0, "{} has no tensor whose name begins with '{}'", folder_, from);
  index_.tensors = std::move(all);
}

void OpenedStep::open(const std::set<std::string>& files) {
  if (foreign_) return;  // it opens what is read
  for (const auto& name : files) {
    const auto& file =
        files_.emplace(name, open_file(folder_, name, index_.files.at(name))).first->second;
    check<Corrupt>(file.entries().size() == counts_[name], "{}: has {} tensors; the index says {}",
                   file.path(), file.entries().size(), counts_[name]);
  }
  for (const auto& [name, t] : index_.tensors)
    for (const auto& part : t.parts) {
      if (!files.count(part.file)) continue;
      const auto& file = files_.at(part.file);
      const std::string key = place_of(part.slice.name).key;
      const auto* entry = file.find(key);
      check<Corrupt>(entry && entry->shape == part.slice.lengths &&
                         safetensors_dtype_name(entry->dtype) == t.dtype,
                     "{}: tensor '{}' is missing or not as the index says", file.path(), key);
    }
}

void OpenedStep::open_all() {
  std::set<std::string> all;
  for (const auto& [name, info] : index_.files) all.insert(name);
  open(all);
}

std::span<const uint8_t> OpenedStep::bytes(const IndexPart& part) const {
  if (foreign_) return foreign_->bytes(part);
  const SafetensorsFile& file = files_.at(part.file);
  return file.bytes(*file.find(place_of(part.slice.name).key));
}

void OpenedStep::verify(const IndexPart& part, uint64_t begin, uint64_t end) const {
  if (foreign_) return foreign_->verify(part);
  const auto all = bytes(part);
  if (all.empty()) return;
  const uint64_t block = index_.block == 0 ? all.size() : static_cast<uint64_t>(index_.block);
  for (uint64_t b = begin / block; b * block < end; ++b) {
    const auto read = all.subspan(b * block, std::min<uint64_t>(block, all.size() - b * block));
    check<Corrupt>(Checksum::number_of(read.data(), read.size()) == part.blocks.at(b),
                   "{}/{}: the checksum of tensor '{}' does not fit (bytes {} to {} of it)",
                   folder_, part.file, place_of(part.slice.name).key, b * block,
                   b * block + read.size() - 1);
  }
}

}  // namespace trireme
