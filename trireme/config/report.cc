// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/config/key_table.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/step.h"

namespace trireme {
namespace {

const char* verdict_name(KeyReport::Verdict verdict) {
  switch (verdict) {
    case KeyReport::Verdict::supported:
      return "supported";
    case KeyReport::Verdict::without_effect:
      return "accepted without effect";
    case KeyReport::Verdict::refused:
      return "refused";
    case KeyReport::Verdict::wrong:
      return "wrong";
  }
  return "wrong";
}

std::string cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  text.resize(most - 3);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
  if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
  return text + "...";
}

/// Pads columns to their widest cell, except the last.
template <size_t N>
std::string columns(const std::vector<std::array<std::string, N>>& rows) {
  std::array<size_t, N> width{};
  for (const auto& row : rows)
    for (size_t i = 0; i < N; ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < N; ++i)
      line += i + 1 < N ? fmt::format("{:<{}}  ", row[i], width[i]) : row[i];
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string batch_line(const Batches& b, const Config& config) {
  const auto parallelism = config.section<ParallelismSection>();
  // Ranks of a model, and those of a row, read one batch.
  const bool divided = parallelism.tp * parallelism.pp * parallelism.cp > 1;
  std::string text =
      fmt::format("{} = {} per rank × {} accumulated × {} {}{}", b.train, b.micro, b.accumulation,
                  b.dp, divided ? "data-parallel " : "", b.dp == 1 ? "rank" : "ranks");
  return b.note.empty() ? text : text + " (" + b.note + ")";
}

/// Returns the number of data-parallel ranks for which three given batch numbers agree; otherwise
/// the number that the sharding keys ask for, or one.
int implied_dp(const Config& config, const ParallelismSection& parallelism) {
  if (parallelism.dp > 0) return static_cast<int>(parallelism.dp);
  const auto step = config.section<StepSection>();
  const auto &micro = step.train_micro_batch_size_per_gpu,
             &accumulation = step.gradient_accumulation_steps;
  if (!step.train_batch_size || !micro || !accumulation)
    return static_cast<int>(std::max<int64_t>(1, parallelism.dp_shard) *
                            std::max<int64_t>(1, parallelism.dp_replicate));
  const int64_t local = *micro * *accumulation, train = *step.train_batch_size;
  return train % local == 0 && train / local <= 1'000'000 ? static_cast<int>(train / local) : 1;
}

int implied_world(const Config& config) {
  const auto parallelism = config.section<ParallelismSection>();
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t model =
      std::min(kMost, std::min(kMost, parallelism.tp * parallelism.pp) * parallelism.cp);
  return static_cast<int>(std::min(kMost, model * implied_dp(config, parallelism)));
}

bool runs(const KeyInfo& key) { return key.status == KeyStatus::supported && key.alias_of.empty(); }

/// Returns the allowed values: "1 to 10000", "gpt, mlp", "true or false".
std::string range_of(const KeyInfo& key) {
  if (!key.choices.empty()) return fmt::to_string(fmt::join(split_words(key.choices), ", "));
  const char* each = key.type == KeyType::integers || key.type == KeyType::numbers ? "each " : "";
  const bool least = !std::isinf(key.min), most = !std::isinf(key.max);
  if (least && most) return fmt::format("{}{} to {}", each, key.min, key.max);
  if (least) return fmt::format("{}at least {}", each, key.min);
  if (most) return fmt::format("{}at most {}", each, key.max);
  return std::string(type_name(key.type));
}

std::string when_of(const KeyInfo& key) {
  std::string text;
  for (const auto& condition : split_words(key.when, '|')) {
    const auto equals = condition.find('=');
    text += fmt::format("{}{} is {}", text.empty() ? "" : ", or ", condition.substr(0, equals),
                        fmt::join(split_words(condition.substr(equals + 1), ','), ", "));
  }
  return text;
}

/// Escapes text for a cell of a table.
std::string in_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<' || c == '[') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string keys_text(const KeyTable& table) {
  std::vector<std::array<std::string, 4>> rows;
  for (const auto& key : table.keys())
    if (runs(key)) rows.push_back({key.path, key.default_json, range_of(key), key.help});
  return columns(rows);
}

std::string keys_markdown(const KeyTable& table) {
  std::map<std::string, std::string> others;
  for (const auto& key : table.keys())
    if (!key.alias_of.empty()) others[key.alias_of] += fmt::format(", also `{}`", key.path);
  std::string out = "| key | default | values | |\n|---|---|---|---|\n";
  for (const auto& key : table.keys()) {
    if (!runs(key)) continue;
    const std::string value = key.default_json.empty() ? "" : fmt::format("`{}`", key.default_json);
    std::string what = in_cell(key.help);
    if (!key.when.empty()) what += fmt::format(" ({})", in_cell("when " + when_of(key)));
    out += fmt::format("| `{}`{} | {} | {} | {} |\n", key.path, others[key.path], value,
                       in_cell(range_of(key)), what);
  }
  return out;
}

std::string CheckReport::first_error() const {
  for (const auto& key : inspection.keys)
    if (!key.error.empty()) return key.error;
  return batch_error.empty() && !refused.empty() ? refused.front() : batch_error;
}

int CheckReport::errors() const {
  auto& keys = inspection.keys;
  return static_cast<int>(std::count_if(keys.begin(), keys.end(),
                                        [](auto& key) { return !key.error.empty(); })) +
         !batch_error.empty() + static_cast<int>(refused.size());
}

CheckReport check_config(const ConfigInputs& inputs, int world,
                         std::shared_ptr<const KeyTable> table) {
  CheckReport report{Config::inspect(inputs, std::move(table)), {}, {}, {}};
  const Config& config = report.inspection.config;
  try {
    report.batches = config.resolve_batches(world > 0 ? world : implied_world(config));
  } catch (const UsageError& error) {
    // An invalid batch number has already been reported.
    bool known = false;
    for (const auto& key : report.inspection.keys)
      known |= !key.error.empty() &&
               (key.path.ends_with("batch_size") || key.path.ends_with("_per_gpu") ||
                key.path == "gradient_accumulation_steps" || key.path == "training.leaves");
    if (!known) report.batch_error = error.what();
  }
  return report;
}

std::string check_text(const CheckReport& report) {
  std::vector<std::array<std::string, 5>> rows;
  for (const auto& key : report.inspection.keys)
    rows.push_back(
        {verdict_name(key.verdict), key.path, cut(key.value, 40), key.origin.str(), key.why});
  std::string out =
      rows.empty() ? std::string("  nothing given: every value is a default\n") : columns(rows);
  for (const auto& note : report.inspection.notes) out += "note: " + note + "\n";
  if (report.batches)
    out += "batch: " + batch_line(*report.batches, report.inspection.config) + "\n";
  if (!report.batch_error.empty()) out += "batch: " + report.batch_error + "\n";
  for (const auto& sentence : report.refused) out += "train: " + sentence + "\n";
  out += report.ok()
             ? "ok\n"
             : fmt::format("{} {}\n", report.errors(), report.errors() == 1 ? "error" : "errors");
  return out;
}

std::string check_json(const CheckReport& report) {
  using Json = nlohmann::ordered_json;
  Json root;
  root["ok"] = report.ok();
  root["keys"] = Json::array();
  root["errors"] = Json::array();
  for (const auto& key : report.inspection.keys) {
    Json row;
    row["key"] = key.path;
    row["value"] = Json::parse(key.value, nullptr, false);
    row["origin"] = key.origin.str();
    row["status"] = verdict_name(key.verdict);
    if (!key.why.empty()) row["why"] = key.why;
    row["deepspeed"] = key.deepspeed;
    root["keys"].push_back(std::move(row));
    if (!key.error.empty()) root["errors"].push_back(key.error);
  }
  if (!report.batch_error.empty()) root["errors"].push_back(report.batch_error);
  for (const auto& sentence : report.refused) root["errors"].push_back(sentence);
  root["notes"] = report.inspection.notes;
  if (report.batches) {
    const Batches& b = *report.batches;
    root["batches"] = {{"train_batch_size", b.train},
                       {"train_micro_batch_size_per_gpu", b.micro},
                       {"gradient_accumulation_steps", b.accumulation},
                       {"data_parallel_ranks", b.dp}};
    if (!b.note.empty()) root["batches"]["note"] = b.note;
  }
  if (report.inspection.ok()) root["config_hash"] = report.inspection.config.hash();
  return root.dump(2) + "\n";
}

std::string show_text(const Config& config, const std::optional<Batches>& batches) {
  std::vector<std::array<std::string, 3>> rows;
  for (const auto& key : config.table().keys()) {
    if (!runs(key) || !config.applies(key.path)) continue;
    if (auto text = config.value_text(key.path))
      rows.push_back({key.path, *text, config.origin(key.path)});
  }
  std::string out = columns(rows);
  if (batches) out += "batch: " + batch_line(*batches, config) + "\n";
  return out + "hash: " + config.hash() + "\n";
}

}  // namespace trireme
