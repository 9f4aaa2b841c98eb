// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/config_loader.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr const char* kBatchKeys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                      "gradient_accumulation_steps"};

bool is_auto(const KeyInfo& key, const Value& value) {
  if (value.is(Value::Kind::null)) return true;
  if (!value.is(Value::Kind::string) || (value.string != "auto" && value.string != "Auto"))
    return false;
  if (key.type != KeyType::text || key.status == KeyStatus::refused) return true;
  auto choices = split_words(key.choices);
  return !choices.empty() && std::find(choices.begin(), choices.end(), "auto") == choices.end();
}

/// Whether this is the value of the key that requests nothing.
bool asks_nothing(const KeyInfo& key, const Value& value) {
  Value given, harmless;
  return !key.harmless.empty() && normalise(key, value, &given).empty() &&
         normalise(key, read_json("the table of keys", key.harmless), &harmless).empty() &&
         given == harmless;
}

bool contains_word(const std::string& words, std::string_view word) {
  auto list = split_words(words);
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// Converts a flag's text to a value: JSON if that is intended, else the text itself.
Value flag_value(const KeyTable& table, const ConfigOverride& flag) {
  const KeyInfo* key = table.find(flag.key);
  std::string source = flag.origin + " " + flag.key;
  auto as_text = [&] { return read_json(source, json_quote(flag.value)); };  // checks its UTF-8
  char first = flag.value.empty() ? '\0' : flag.value[0];
  bool bracket = first == '[' || first == '{' || first == '"';
  bool wants_text = key && (key->type == KeyType::text || key->type == KeyType::texts);
  if (flag.value.empty() || (wants_text && !bracket && flag.value != "null")) return as_text();
  try {
    return read_json(source, flag.value);
  } catch (const UsageError&) {
    // A prompt may begin with a bracket; a list of paths that does is malformed JSON.
    if (bracket && !(key && key->type == KeyType::text)) throw;
    return as_text();
  }
}

}  // namespace

void set_origin(Value* value, const Origin& origin) {
  value->origin = origin;
  for (auto& item : value->array) set_origin(&item, origin);
  for (auto& member : value->members) {
    member.key_origin = origin;
    set_origin(&member.value, origin);
  }
}

void ConfigLoader::add_document(const Value& root) {
  check<UsageError>(root.is(Value::Kind::object),
                    "{}: a configuration is an object, {{ … }}, found {}", root.origin.str(),
                    root.describe());
  level_ += 2;
  if (const Value* kept = root.find("_kept"))
    for (const auto& item : kept->array) kept_.push_back(item.string);
  for (const auto& member : root.members) {
    if (member.key == "_origins" || member.key == "_derived" || member.key == "_kept") continue;
    walk(member.key, member.value, member.key_origin, false);
  }
  kept_.clear();
  close_level();
}

void ConfigLoader::add_overrides(const std::vector<ConfigOverride>& overrides) {
  level_ += 2;
  for (const auto& flag : overrides) {
    Value value = flag_value(config_.table(), flag);
    Origin origin{std::make_shared<const std::string>(flag.origin), 0, 0};
    set_origin(&value, origin);
    walk(flag.key, value, origin, true);
  }
  close_level();
}

void ConfigLoader::walk(const std::string& path, const Value& value, const Origin& at,
                        bool from_flag) {
  const KeyTable& table = config_.table();
  const KeyInfo* key = table.find(path);
  bool section = table.is_section(path);
  if (key && !(value.is(Value::Kind::object) && section)) return leaf(path, *key, value, from_flag);
  if (!section) {
    return wrong(path, value, at,
                 fmt::format("unknown key {}; the nearest known key is {}", json_quote(path),
                             json_quote(table.nearest(path))));
  }
  if (value.is(Value::Kind::object)) {
    for (const auto& member : value.members)
      walk(path + "." + member.key, member.value, member.key_origin, from_flag);
  } else if (value.is(Value::Kind::null) ||
             (value.is(Value::Kind::string) && value.string == "auto")) {
    if (from_flag)
      std::erase_if(merged_, [&](const auto& item) { return item.first.starts_with(path + "."); });
  } else if (path == "zero_optimization" && value.is(Value::Kind::boolean)) {
    // The oldest DeepSpeed spelling: true is stage 1.
    Value stage = Value::of(int64_t{value.boolean});
    stage.origin = value.origin;
    leaf("zero_optimization.stage", *table.find("zero_optimization.stage"), stage, from_flag);
  } else {
    wrong(path, value, value.origin,
          fmt::format("{} is a section: expected {{ … }}, found {}", path, value.describe()));
  }
}

void ConfigLoader::leaf(const std::string& path, const KeyInfo& row, const Value& value,
                        bool from_flag) {
  const KeyInfo& key = row.alias_of.empty() ? row : *config_.table().find(row.alias_of);
  // A "section.*" row covers many paths.
  const std::string& name = key.path.ends_with(".*") ? path : key.path;
  if (!row.alias_true.empty()) {  // an older name that was true or false
    if (!value.is(Value::Kind::boolean) && !is_auto(row, value))
      return wrong(name, value, value.origin,
                   fmt::format("{}: expected true or false, found {}", path, value.describe()));
    if (value.is(Value::Kind::boolean) && value.boolean) {
      Value meant = read_json("the table of keys", row.alias_true);
      set_origin(&meant, value.origin);
      return leaf(name, key, meant, from_flag);
    }
  }
  const bool nothing = !row.alias_of.empty() && asks_nothing(row, value);
  if (is_auto(key, value) || !row.alias_true.empty() || nothing) {
    // "auto" in a file keeps the value of an earlier file; in a flag it removes that value too.
    if (from_flag) merged_.erase(name);
    return findings_.report(findings_.order(), {.path = name,
                                                .value = value.text(),
                                                .origin = value.origin,
                                                .why = "as if not given",
                                                .deepspeed = key.deepspeed});
  }
  bool kept = std::find(kept_.begin(), kept_.end(), name) != kept_.end();
  Given given{&key, value, level_ - kept, findings_.order()};
  if (auto why = normalise(key, value, &given.value); !why.empty())
    return wrong(name, value, value.origin, fmt::format("{}: {}", path, why));
  auto [it, fresh] = merged_.try_emplace(name);
  if (!fresh && !from_flag && it->second.level == given.level)
    return wrong(
        name, value, value.origin,
        fmt::format("{} is given twice (first at {}{}); remove one", path,
                    it->second.value.origin.str(), row.alias_of.empty() ? "" : ", as " + name));
  it->second = std::move(given);
}

void ConfigLoader::wrong(const std::string& path, const Value& value, const Origin& at,
                         const std::string& why) {
  KeyReport entry{.path = path,
                  .value = value.text(),
                  .origin = at,
                  .verdict = KeyReport::Verdict::wrong,
                  .why = why};
  if (const KeyInfo* key = config_.table().find(path)) entry.deepspeed = key->deepspeed;
  entry.error = fmt::format("{}: {}", at.str(), why);
  findings_.report(findings_.order(), std::move(entry));
}

/// The batch rule of design §4, before the number of ranks is known: the numbers of this level take
/// precedence; if there are fewer than two, the first of the older ones (train, micro,
/// accumulation) is kept as long as it fits.
void ConfigLoader::close_level() {
  int fresh = 0, older = 0;
  for (const char* path : kBatchKeys)
    if (auto it = merged_.find(path); it != merged_.end() && it->second.level == level_) ++fresh;
  if (fresh == 0) return;
  for (const char* path : kBatchKeys) {
    auto it = merged_.find(path);
    if (it == merged_.end() || it->second.level == level_) continue;
    // A level that to_json wrote is already merged: the number that it kept stays.
    bool stays = it->second.level == level_ - 1 || (fresh < 2 && older == 0);
    ++older;
    if (stays) continue;
    findings_.report(it->second.order,
                     {.path = path,
                      .value = it->second.value.text(),
                      .origin = it->second.value.origin,
                      .verdict = KeyReport::Verdict::without_effect,
                      .why = "a later file or flag gives batch sizes, from which it is derived",
                      .deepspeed = true});
    merged_.erase(it);
  }
}

void ConfigLoader::judge(const std::string& path, const Given& given) {
  const KeyInfo& key = *given.key;
  KeyReport entry{.path = path,
                  .value = given.value.text(),
                  .origin = given.value.origin,
                  .deepspeed = key.deepspeed};
  auto refuse = [&] {
    entry.verdict = KeyReport::Verdict::refused;
    entry.why = key.why;
    entry.error =
        fmt::format("{}: {} = {} is refused: {}", entry.origin.str(), path, entry.value, key.why);
  };
  if (key.status == KeyStatus::without_effect) {
    entry.verdict = KeyReport::Verdict::without_effect;
    entry.why = key.why;
    config_.ignored_[path] = given.value;
  } else if (key.status == KeyStatus::refused) {
    if (!asks_nothing(key, given.value)) refuse();
  } else if (given.value.is(Value::Kind::string) &&
             contains_word(key.refused_choices, given.value.string)) {
    refuse();
  } else {
    config_.given_[path] = {given.value, given.level};
  }
  findings_.report(given.order, std::move(entry));
}

void ConfigLoader::check_conditions() {
  for (const auto& [path, given] : merged_) {
    const KeyInfo& key = *given.key;
    if (findings_.broken(path) || config_.applies(path)) continue;
    // For each alternative: the required value, the actual value, and where that was chosen.
    int chosen = 0;
    bool unsure = false;
    std::string wanted, is, where;
    for (const auto& condition : split_words(key.when, '|')) {
      auto equals = condition.find('=');
      std::string selector = condition.substr(0, equals), values = condition.substr(equals + 1);
      unsure |= findings_.broken(selector);
      chosen = std::max(chosen, derived_.level_of(selector));
      for (size_t at = 0; (at = values.find(',', at)) != std::string::npos; at += 4)
        values.replace(at, 1, " or ");
      wanted += fmt::format("{}{} is {}", wanted.empty() ? "" : " or ", selector, values);
      is += fmt::format("{}{} is {}", is.empty() ? "" : " and ", selector,
                        config_.chosen(selector)->text());
      where = config_.origin(selector);
    }
    if (unsure) continue;
    config_.given_.erase(path);
    if (given.level < chosen)  // a later level chose another model, optimizer, …
      findings_.idle(path, fmt::format("{}, chosen later", is));
    else if (key.idle)
      findings_.idle(path, fmt::format("is read when {}, and {}", wanted, is));
    else
      findings_.complain(path,
                         fmt::format("applies when {}, and {} ({}); remove it", wanted, is, where));
  }
}

Inspection ConfigLoader::finish() {
  for (const auto& [path, given] : merged_)
    if (!findings_.broken(path)) judge(path, given);
  derive_values(config_, derived_);
  derive_zero(config_, findings_, derived_);
  check_conditions();
  for (const Rule rule : all_rules()) rule(config_, findings_);
  Inspection out;
  out.keys = findings_.take();
  out.notes = deepspeed_surprises(config_);
  out.config = std::move(config_);
  return out;
}

}  // namespace trireme
