// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/steps/exchange/export_bytes.h"
#include "trireme/checkpoint/steps/exchange/export_weights.h"
#include "trireme/checkpoint/steps/safetensors_head.h"

namespace trireme {
namespace {

constexpr const char* kIndexFile = "model.safetensors.index.json";

struct Shard {
  std::string file;
  std::vector<const ExportedTensor*> tensors;
  uint64_t bytes = 0;
};

std::vector<Shard> shards_of(const CheckpointIndex& index, const ExportPlan& plan,
                             uint64_t max_shard) {
  std::vector<Shard> shards(1);
  for (const ExportedTensor& t : plan.tensors) {
    if (!t.same_as.empty()) continue;  // a reader ties it by itself
    const uint64_t bytes = bytes_outside(index.tensors.at(t.name));
    if (!shards.back().tensors.empty() &&
        bytes > max_shard - std::min(max_shard, shards.back().bytes))
      shards.emplace_back();
    shards.back().tensors.push_back(&t);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

// A folder under another name, until it is complete.
class FolderDraft {
 public:
  FolderDraft(std::string folder, bool replace) : folder_(std::move(folder)), replace_(replace) {
    while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
    look();
    make_folders(parent_folder(folder_));
    draft_ = fmt::format("{}.{}.unfinished", folder_, ::getpid());
    remove_tree(draft_);
    if (file_calls::mkdir(draft_, 0777) != 0)
      fail<ResourceError>("cannot make {}: {}", draft_, errno_text());
  }
  ~FolderDraft() {
    try {
      remove_tree(draft_);
    } catch (const Error&) {  // it has the name of what is not finished
    }
  }
  FolderDraft(const FolderDraft&) = delete;

  const std::string& draft() const { return draft_; }
  void publish() {
    fsync_path(draft_);
    look();
    int done = file_calls::rename(draft_, folder_);
    if (done != 0 && (errno == EEXIST || errno == ENOTEMPTY))
      done = file_calls::exchange(draft_, folder_);
    if (done != 0) fail<ResourceError>("cannot rename {} to {}: {}", draft_, folder_, errno_text());
    fsync_path(parent_folder(folder_));
  }

 private:
  // Nothing of somebody else's is replaced.
  void look() const {
    const PathKind kind = path_kind(folder_);
    check<UsageError>(kind == PathKind::nothing || kind == PathKind::folder,
                      "{} is not a folder: name the folder to write", folder_);
    for (const std::string& name : list_folder(folder_)) {
      check<UsageError>(
          replace_, "{} is there already: choose another name, or --force to replace it", folder_);
      check<UsageError>(
          (name.ends_with(".safetensors") || name.ends_with(".json")) &&
              name != CheckpointIndex::kFileName &&
              path_kind(folder_ + "/" + name) == PathKind::file,
          "{} holds '{}', which no export made: it is not replaced; choose another name", folder_,
          name);
    }
  }

  std::string folder_, draft_;
  bool replace_;
};

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

std::map<std::string, std::string> metadata_of(const CheckpointIndex& index,
                                               const ExportPlan& plan) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (!plan.whole_state) return metadata;
  for (const auto& [name, value] : index.values)
    metadata["value." + name] = std::visit(
        [](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>)
            return text_or_hex(v);
          else
            return fmt::format("{}", v);
        },
        value);
  return metadata;
}

void write_shard(StepReader& step, const Shard& shard, const std::string& folder,
                 const std::map<std::string, std::string>& metadata) {
  const std::string path = folder + "/" + shard.file;
  std::vector<std::pair<SafetensorsTensor, const ExportedTensor*>> order;
  for (const ExportedTensor* t : shard.tensors) {
    const IndexTensor& saved = step.index().tensors.at(t->name);
    order.push_back({{t->out, saved.dtype, shape_outside(saved, *t)}, t});
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  std::vector<SafetensorsTensor> described;
  for (const auto& [tensor, from] : order) described.push_back(tensor);
  const std::string head = safetensors_head(described, metadata, path);
  OutputFile file(path);
  file.write(head.data(), head.size());
  for (const auto& [tensor, from] : order)
    for_each_window(step, *from, [&](std::span<const uint8_t> bytes) {
      file.write(bytes.data(), bytes.size());
    });
  file.finish();
}

std::string index_json(const std::vector<Shard>& shards, uint64_t bytes) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const Shard& shard : shards)
    for (const ExportedTensor* t : shard.tensors) map[t->out] = shard.file;
  return nlohmann::ordered_json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(
             2) +
         "\n";
}

}  // namespace

Exported export_safetensors(StepReader& step, const ExportPlan& plan, const std::string& folder,
                            uint64_t max_shard, bool replace) {
  const std::vector<Shard> shards = shards_of(step.index(), plan, max_shard);
  const auto metadata = metadata_of(step.index(), plan);
  FolderDraft draft(folder, replace);
  Exported out;
  for (const Shard& shard : shards) {
    write_shard(step, shard, draft.draft(), metadata);
    out.files.push_back(shard.file);
    out.bytes += shard.bytes;
  }
  std::map<std::string, std::string> more = plan.more_files;
  if (shards.size() > 1) more[kIndexFile] = index_json(shards, out.bytes);
  for (const auto& [name, text] : more) {
    write_text(draft.draft() + "/" + name, text);
    out.files.push_back(name);
  }
  draft.publish();
  return out;
}

}  // namespace trireme
