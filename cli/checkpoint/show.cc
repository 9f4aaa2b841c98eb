// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {
namespace {

struct KindTotal {
  int64_t tensors = 0;
  uint64_t bytes = 0;
};

uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

// "model", "own", "data"; of two kinds the first two words: "optim.exp_avg", "hook.error".
std::string kind_of(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string first = name.substr(0, dot);
  if (dot == std::string::npos || (first != "optim" && first != "hook")) return first;
  return name.substr(0, name.find('.', dot + 1));
}

std::map<std::string, KindTotal> kinds_of(const CheckpointIndex& index) {
  std::map<std::string, KindTotal> kinds;
  for (const auto& [name, t] : index.tensors) {
    KindTotal& total = kinds[kind_of(name)];
    ++total.tensors;
    total.bytes = sum(total.bytes, bytes_of(t));
  }
  return kinds;
}

std::string part_text(const IndexPart& part) {
  if (part.slice.is_whole()) return part.file;
  return fmt::format("{} + {} in {}", list_text(part.slice.offsets), list_text(part.slice.lengths),
                     part.file);
}

std::string show_text(const std::string& folder, const CheckpointIndex& index,
                      const std::vector<std::string>& names, const CheckpointFlags& flags) {
  uint64_t size = 0;
  for (const auto& [name, file] : index.files) size = sum(size, file.size);
  std::string text = fmt::format(
      "{}\nstep {}, saved by {} {} ({}), in version {} of the format\n"
      "{} tensors and {} values, {} in {} files\n\n",
      shown(folder), index.step, index.world, index.world == 1 ? "rank" : "ranks",
      shown(index.layout), index.version, index.tensors.size(), index.values.size(),
      bytes_text(size), index.files.size());
  std::vector<std::vector<std::string>> rows{{"KIND", "TENSORS", "BYTES"}};
  for (const auto& [kind, total] : kinds_of(index))
    rows.push_back({shown(kind), std::to_string(total.tensors), bytes_text(total.bytes)});
  text += table(rows) + "\n";
  rows = {{"TENSOR", "DTYPE", "SHAPE", "BYTES", "WHERE"}};
  for (const std::string& name : names) {
    const IndexTensor& t = index.tensors.at(name);
    rows.push_back({shown(name), shown(t.dtype), list_text(t.shape()), bytes_text(bytes_of(t)),
                    part_text(t.parts.front())});
    for (size_t i = 1; i < t.parts.size(); ++i)
      rows.push_back({"", "", "", "", part_text(t.parts[i])});
  }
  text += table(rows);
  if (!flags.values) return text;
  rows = {{"VALUE", ""}};
  for (const auto& [name, value] : index.values) rows.push_back({shown(name), value_text(value)});
  return text + "\n" + table(rows);
}

nlohmann::ordered_json show_json(const std::string& folder, const CheckpointIndex& index,
                                 const std::vector<std::string>& names,
                                 const CheckpointFlags& flags) {
  using nlohmann::ordered_json;
  ordered_json files = ordered_json::object(), kinds = ordered_json::object(),
               tensors = ordered_json::object(), values = ordered_json::object();
  for (const auto& [name, file] : index.files) files[name] = file.size;
  for (const auto& [kind, total] : kinds_of(index))
    kinds[kind] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  for (const std::string& name : names) {
    const IndexTensor& t = index.tensors.at(name);
    ordered_json parts = ordered_json::array();
    for (const IndexPart& part : t.parts)
      parts.push_back(
          {{"file", part.file}, {"offsets", part.slice.offsets}, {"lengths", part.slice.lengths}});
    tensors[name] = {
        {"dtype", t.dtype}, {"shape", t.shape()}, {"bytes", bytes_of(t)}, {"parts", parts}};
  }
  ordered_json json{
      {"folder", folder},       {"step", index.step},       {"ranks", index.world},
      {"layout", index.layout}, {"version", index.version}, {"tensor_count", index.tensors.size()},
      {"files", files},         {"kinds", kinds},           {"tensors", tensors}};
  if (!flags.values) return json;
  for (const auto& [name, value] : index.values) values[name] = value_json(value);
  json["values"] = values;
  return json;
}

}  // namespace

int checkpoint_show(const CheckpointFlags& flags) {
  const std::string folder = step_folder_at(flags.path);
  const CheckpointIndex index = reading_steps({folder}, [&] { return read_step_index(folder); });
  std::vector<std::string> names;
  for (const auto& [name, t] : index.tensors)
    if (matches(flags.tensors, name)) names.push_back(name);
  check<UsageError>(flags.tensors.empty() || !names.empty(), "no tensor of {} matches '{}'", folder,
                    flags.tensors);
  deliver(flags, show_text(folder, index, names, flags), show_json(folder, index, names, flags));
  return kExitDone;
}

}  // namespace trireme
