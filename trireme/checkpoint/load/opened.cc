// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/opened.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/checkpoint/load/block_numbers.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {
namespace {

template <class Map>
void keep_prefix(Map& map, const std::string& prefix) {
  std::erase_if(map, [&](const auto& item) { return !item.first.starts_with(prefix); });
}

}  // namespace

OpenedStep::OpenedStep(std::string folder, std::string prefix)
    : folder_(std::move(folder)), prefix_(std::move(prefix)) {
  take(read_step_index(folder_));
}

OpenedStep::OpenedStep(std::shared_ptr<const HeldStep> step, std::string prefix)
    : folder_(step->name()), prefix_(std::move(prefix)), held_(std::move(step)) {
  take(held_->index());
}

void OpenedStep::take(CheckpointIndex index) {
  index_ = std::move(index);
  for (const auto& [name, t] : index_.tensors)
    for (const auto& part : t.parts) ++counts_[part.file];
  keep_prefix(index_.tensors, prefix_);
  keep_prefix(index_.values, prefix_);
  number_blocks(index_);
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
  number_blocks(index_);
}

void OpenedStep::open(const std::set<std::string>& files) {
  if (foreign_) return;  // it opens what is read
  if (!open_files_) open_files_ = std::make_shared<OpenFiles>();
  std::map<std::string, std::unique_ptr<PartSource>> fresh;
  for (const auto& name : files) {
    if (files_.count(name)) continue;
    std::unique_ptr<PartSource>& opened = fresh[name];
    if (held_)
      opened = held_->open(name);
    else
      opened = std::make_unique<StepFile>(folder_, name, index_.files.at(name), open_files_);
    const PartSource& file = *opened;
    check<Corrupt>(file.count() == counts_[name], "{}: has {} tensors; the index says {}",
                   file.path(), file.count(), counts_[name]);
  }
  for (auto& [name, t] : index_.tensors)
    for (IndexPart& part : t.parts)
      if (const auto file = fresh.find(part.file); file != fresh.end())
        part.begin = file->second->find(part, t.dtype).begin;
  for (const auto& [name, file] : fresh) file->forget_entries();
  files_.merge(fresh);
}

PartBytes OpenedStep::bytes(const IndexTensor& tensor, const IndexPart& part) const {
  const auto size = static_cast<uint64_t>(part.slice.numel() * safetensors_item_size(tensor.dtype));
  if (foreign_) return {foreign_->open(part), 0, size};
  return {files_.at(part.file).get(), part.begin, size};
}

}  // namespace trireme
