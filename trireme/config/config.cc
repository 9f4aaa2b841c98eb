// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/config.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/config/config_loader.h"
#include "trireme/config/key_reads.h"
#include "trireme/config/key_table.h"

namespace trireme {
namespace {

Config throw_first(Inspection inspection) {
  std::string first;
  int more = -1;
  for (const auto& key : inspection.keys) {
    if (key.error.empty()) continue;
    if (first.empty()) first = key.error;
    ++more;
  }
  check<UsageError>(
      first.empty(), "{}{}", first,
      more > 0 ? fmt::format(" (and {} more: trireme config check lists them)", more) : "");
  return std::move(inspection.config);
}

}  // namespace

ConfigOverride parse_set(std::string_view text) {
  auto equals = text.find('=');
  check<UsageError>(equals != std::string_view::npos && equals > 0,
                    "--set {}: expected KEY=VALUE, such as --set training.steps=100",
                    json_quote(text));
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

ConfigInputs ConfigInputs::from(std::vector<std::string> files,
                                const std::vector<std::string>& sets) {
  ConfigInputs inputs{std::move(files), {}};
  for (const auto& set : sets) inputs.overrides.push_back(parse_set(set));
  return inputs;
}

Inspection Config::inspect(const ConfigInputs& inputs, std::shared_ptr<const KeyTable> table) {
  ConfigLoader loader(std::move(table));
  for (const auto& file : inputs.files) loader.add_document(read_json_file(file));
  loader.add_overrides(inputs.overrides);
  return loader.finish();
}

Config Config::load(const ConfigInputs& inputs, std::shared_ptr<const KeyTable> table) {
  return throw_first(inspect(inputs, std::move(table)));
}

Config Config::from_text(const std::string& name, std::string_view text,
                         const std::vector<std::string>& sets,
                         std::shared_ptr<const KeyTable> table) {
  ConfigLoader loader(std::move(table));
  loader.add_document(read_json(name, text));
  loader.add_overrides(ConfigInputs::from({}, sets).overrides);
  return throw_first(loader.finish());
}

const KeyTable& Config::table() const { return table_ ? *table_ : *KeyTable::built_in(); }

Config Config::noting(std::shared_ptr<KeyReads> reads) const {
  Config copy = *this;
  copy.reads_ = std::move(reads);
  return copy;
}

void Config::note(std::string_view path) const {
  if (reads_) reads_->add(path);
}

const KeyInfo& Config::row_of(std::string_view path) const {
  const KeyInfo* key = table().find(path);
  if (!key || key->status != KeyStatus::supported || !key->alias_of.empty())
    fail<UsageError>("no configuration key \"{}\" to read; the nearest is \"{}\"", path,
                     table().nearest(path));
  return *key;
}

const Value* Config::lookup(std::string_view path) const {
  if (auto it = derived_.find(path); it != derived_.end()) return &it->second;
  if (auto it = given_.find(path); it != given_.end()) return &it->second.value;
  return table().default_of(row_of(path));
}

int Config::level_of(std::string_view path) const {
  auto it = given_.find(path);
  return it == given_.end() ? 0 : it->second.level;
}

const Value& Config::value(std::string_view path, std::initializer_list<KeyType> types) const {
  const KeyInfo& key = row_of(path);
  check<UsageError>(std::find(types.begin(), types.end(), key.type) != types.end(),
                    "the configuration key {} is not read as its type, {}", path,
                    type_name(key.type));
  note(path);
  const Value* found = lookup(path);
  check<UsageError>(found != nullptr, "the configuration has no {}: set it ({})", path, key.help);
  return *found;
}

int64_t Config::get_int(std::string_view path) const {
  return value(path, {KeyType::integer}).integer;
}

double Config::get_double(std::string_view path) const {
  return value(path, {KeyType::number, KeyType::integer}).number;
}

bool Config::get_bool(std::string_view path) const {
  return value(path, {KeyType::boolean}).boolean;
}

std::string Config::get_string(std::string_view path) const {
  return value(path, {KeyType::text}).string;
}

std::vector<std::string> Config::get_string_list(std::string_view path) const {
  std::vector<std::string> out;
  for (const auto& item : value(path, {KeyType::texts}).array) out.push_back(item.string);
  return out;
}

std::vector<int64_t> Config::get_int_list(std::string_view path) const {
  std::vector<int64_t> out;
  for (const auto& item : value(path, {KeyType::integers}).array) out.push_back(item.integer);
  return out;
}

std::vector<double> Config::get_double_list(std::string_view path) const {
  std::vector<double> out;
  for (const auto& item : value(path, {KeyType::numbers}).array) out.push_back(item.number);
  return out;
}

bool Config::has(std::string_view path) const {
  note(path);
  return lookup(path) != nullptr;
}

bool Config::is_default(std::string_view path) const {
  return row_of(path), given_.find(path) == given_.end();
}

std::string Config::origin(std::string_view path) const {
  row_of(path);
  auto it = given_.find(path);
  return it == given_.end() ? "default" : it->second.value.origin.str();
}

std::optional<std::string> Config::value_text(std::string_view path) const {
  const Value* found = lookup(path);
  return found ? std::optional(found->text()) : std::nullopt;
}

const Value* Config::chosen(std::string_view path) const {
  return applies(path) ? lookup(path) : table().default_of(row_of(path));
}

bool Config::applies(std::string_view path) const {
  const KeyInfo* key = table().find(path);
  if (!key || key->when.empty()) return true;
  for (const auto& condition : split_words(key->when, '|')) {
    auto equals = condition.find('=');
    const Value* now = chosen(condition.substr(0, equals));
    std::string text = now->is(Value::Kind::string) ? now->string : now->text();
    auto wanted = split_words(std::string_view(condition).substr(equals + 1), ',');
    if (std::find(wanted.begin(), wanted.end(), text) != wanted.end()) return true;
  }
  return false;
}

/// Whether a batch number is of an older level than the newest one.
bool Config::is_kept(std::string_view path) const {
  int newest = std::max({level_of("train_batch_size"), level_of("train_micro_batch_size_per_gpu"),
                         level_of("gradient_accumulation_steps")});
  return level_of(path) > 0 && level_of(path) < newest;
}

Degrees Config::resolve_degrees(int world) const {
  const auto number = [&](const char* path) {
    return DegreeInputs::Number{get_int(path), origin(path)};
  };
  return solve_degrees({.dp = number("parallelism.dp"),
                        .tp = number("parallelism.tp"),
                        .pp = number("parallelism.pp"),
                        .cp = number("parallelism.cp")},
                       world);
}

Batches Config::resolve_batches(int world) const {
  const int dp = resolve_degrees(world).dp;
  resolve_sharding(world);
  BatchInputs inputs;
  auto take = [&](const char* path, std::optional<BatchNumber>* number) {
    if (!is_default(path)) *number = {get_int(path), origin(path), is_kept(path)};
  };
  take("train_batch_size", &inputs.train);
  take("train_micro_batch_size_per_gpu", &inputs.micro);
  take("gradient_accumulation_steps", &inputs.accumulation);
  int64_t leaves = applies("training.leaves") ? get_int("training.leaves") : 0;
  if (leaves > 0 && dp >= 1) {
    std::string where = origin("training.leaves");
    check<UsageError>(leaves % dp == 0,
                      "training.leaves {} ({}) is not divisible by {} ranks: start a power of two "
                      "of ranks, at most {}",
                      leaves, where, dp, leaves);
    // Leaves are counted over all ranks, so accumulation follows from the number of ranks; an older
    // accumulation is dropped.
    bool older = level_of("gradient_accumulation_steps") < level_of("training.leaves");
    check<UsageError>(!inputs.accumulation || older || inputs.accumulation->value == leaves / dp,
                      "gradient_accumulation_steps {} ({}) × {} ranks is not training.leaves {} "
                      "({}): leave one out",
                      inputs.accumulation ? inputs.accumulation->value : 0,
                      inputs.accumulation ? inputs.accumulation->origin : "", dp, leaves, where);
    inputs.accumulation = {leaves / dp, "training.leaves at " + where, false};
  }
  return solve_batches(inputs, dp);
}

Sharding Config::resolve_sharding(int world) const {
  ShardingInputs inputs;
  inputs.stage = static_cast<int>(get_int("zero_optimization.stage"));
  // Report a value that came from one of DeepSpeed's keys at that key's place.
  auto origin_of = [&](const char* path) {
    return !is_default(path) ? origin(path)
           : !is_default("zero_optimization.mics_shard_size")
               ? origin("zero_optimization.mics_shard_size")
           : !is_default("zero_optimization.zero_hpz_partition_size")
               ? origin("zero_optimization.zero_hpz_partition_size")
               : origin(path);
  };
  inputs.shard = {get_int("parallelism.dp_shard"), origin_of("parallelism.dp_shard")};
  inputs.replicate = {get_int("parallelism.dp_replicate"), origin("parallelism.dp_replicate")};
  return solve_sharding(inputs, resolve_degrees(world));
}

std::string Config::hash() const {
  std::map<std::string, std::string>
      lines;  // sorted, so that the order of the table does not count
  for (const auto& key : table().keys()) {
    if (key.status != KeyStatus::supported || !key.alias_of.empty() || !applies(key.path)) continue;
    if (const Value* found = lookup(key.path)) lines[key.path] = found->text();
  }
  std::string all;
  for (const auto& [path, text] : lines) all += path + "=" + text + "\n";
  return fmt::format("{:016x}", stable_hash(all));
}

}  // namespace trireme
