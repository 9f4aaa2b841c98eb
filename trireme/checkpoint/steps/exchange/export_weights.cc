// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/exchange/export_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/file/result_file.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/exchange/export_bytes.h"
#include "trireme/interop/torch_file.h"

namespace trireme {
namespace {

void verify_part(const StepFile& file, const CheckpointIndex& index, const IndexPart& part,
                 const std::string& dtype) {
  const interop::SafetensorsEntry& array = file.find(part, dtype);
  const uint64_t size = array.end - array.begin;
  const uint64_t block = index.block == 0 ? size : static_cast<uint64_t>(index.block);
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  std::vector<uint8_t> buffer;
  for (uint64_t begin = 0, i = 0; begin < size; begin += block, ++i) {
    const uint64_t end = std::min(begin + block, size);
    Checksum checksum;
    for (uint64_t at = begin; at < end; at += buffer.size()) {
      buffer.resize(static_cast<size_t>(std::min(end - at, kPiece)));
      file.read(array.begin + at, buffer);
      checksum.add(buffer.data(), buffer.size());
    }
    check<Corrupt>(checksum.number() == part.blocks.at(i),
                   "{}: tensor '{}': block {} does not fit its checksum (it is {}; the index says "
                   "{}): 'trireme checkpoint verify' finds the steps that are good",
                   file.path(), place_of(part.slice.name).key, i, checksum.hex(),
                   Checksum::hex_of(part.blocks.at(i)));
  }
}

interop::NodeId value_node(interop::Tree& tree, const IndexValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return tree.integer(*i);
  if (const auto* d = std::get_if<double>(&value)) return tree.real(*d);
  return tree.text(text_or_hex(std::get<std::string>(value)));
}

// What a .pt file holds, and the step's tensors that its storages are.
class TorchTree {
 public:
  TorchTree(const CheckpointIndex& index, const ExportPlan& plan) {
    const interop::NodeId weights = tree.ordered_dict();
    tree.root = weights;
    interop::NodeId state = weights;
    if (plan.whole_state) {
      tree.root = tree.dict();
      state = tree.ordered_dict();
      tree.set(tree.root, "model", weights);
    }
    for (const ExportedTensor& t : plan.tensors)
      tree.set(t.name.starts_with("model.") ? weights : state, t.out, add(index, t));
    if (!plan.whole_state) return;
    tree.set(tree.root, "state", state);
    const interop::NodeId values = tree.dict();
    for (const auto& [name, value] : index.values) tree.set(values, name, value_node(tree, value));
    tree.set(tree.root, "values", values);
  }

  interop::Tree tree;
  std::vector<const ExportedTensor*> storages;

 private:
  interop::NodeId add(const CheckpointIndex& index, const ExportedTensor& t) {
    if (!t.same_as.empty()) return tree.array(tree.arrays.at(places_.at(t.same_as)));
    const IndexTensor& saved = index.tensors.at(t.name);
    places_[t.out] = tree.arrays.size();
    storages.push_back(&t);
    return tree.array(saved.dtype, shape_outside(saved, t));
  }
  std::map<std::string, size_t> places_;  // name outside → array of the tree
};

}  // namespace

void verify_exported(const StepReader& step, const ExportPlan& plan) {
  const CheckpointIndex& index = step.index();
  // By files, so that each is opened once.
  std::map<std::string, std::vector<std::pair<const IndexPart*, const std::string*>>> files;
  for (const ExportedTensor& t : plan.tensors) {
    if (!t.same_as.empty()) continue;
    const IndexTensor& saved = index.tensors.at(t.name);
    for (const IndexPart& part : saved.parts) files[part.file].emplace_back(&part, &saved.dtype);
  }
  for (const auto& [name, parts] : files) {
    const StepFile file(step.folder(), name, index.files.at(name));
    for (const auto& [part, dtype] : parts) verify_part(file, index, *part, *dtype);
  }
}

Exported export_torch(StepReader& step, const ExportPlan& plan, const std::string& path,
                      bool replace) {
  const PathKind kind = path_kind(path);
  check<UsageError>(kind == PathKind::nothing || kind == PathKind::file,
                    "{} is not a file: name the .pt file to write", path);
  check<UsageError>(kind == PathKind::nothing || replace,
                    "{} is there already: choose another name, or --force to replace it", path);
  const TorchTree torch(step.index(), plan);
  Exported out{{path}};
  std::vector<uint8_t> whole;
  interop::write_torch_file(
      follow_links(path), torch.tree, [&](size_t storage) -> std::span<const uint8_t> {
        whole.clear();
        for_each_window(step, *torch.storages[storage], [&](std::span<const uint8_t> bytes) {
          whole.insert(whole.end(), bytes.begin(), bytes.end());
        });
        out.bytes += whole.size();
        return whole;
      });
  return out;
}

}  // namespace trireme
