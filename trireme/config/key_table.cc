// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/key_table.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/config/config_loader.h"
#include "trireme/config/sections/built_in.h"

namespace trireme {
namespace {

std::string_view last_part(std::string_view path) {
  auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent(std::string_view path) {
  auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

}  // namespace

KeyTable KeyTable::make_built_in() {
  KeyTable table;
  for (KeyInfo& row : built_in_keys()) table.append(std::move(row));
  return table;
}

std::shared_ptr<const KeyTable> KeyTable::built_in() {
  static const auto table = std::make_shared<const KeyTable>(make_built_in());
  return table;
}

void KeyTable::append(KeyInfo row) {
  if (!row.default_json.empty()) {
    Value value;
    const std::string wrong =
        normalise(row, read_json("the table of keys", row.default_json), &value);
    check<UsageError>(wrong.empty(), "the default of the key {}: {}", row.path, wrong);
    value.origin = {};
    defaults_[row.path] = std::move(value);
  }
  const std::string& path = row.path;
  by_path_.emplace(path, keys_.size());
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    sections_.insert(path.substr(0, dot));
  keys_.push_back(std::move(row));
}

/// Checks a row that a program adds.
void KeyTable::check_new(const KeyInfo& row) const {
  const std::string& path = row.path;
  const auto parts = split_words(path, '.');
  const bool whole = !parts.empty() && path.front() != '.' && path.back() != '.' &&
                     path.find("..") == std::string::npos && path.front() != '_';
  check<UsageError>(whole,
                    "a key of a section of your own is called {}: give it a name such as "
                    "game.players",
                    json_quote(path));
  const KeyInfo* taken = find(path);
  check<UsageError>(!taken,
                    "the key {} of a section of your own is taken: the table has {} already", path,
                    taken ? taken->path : "");
  check<UsageError>(!is_section(path),
                    "the key {} of a section of your own is the name of a section", path);
  for (auto up = parent(path); !up.empty(); up = parent(up))
    check<UsageError>(!by_path_.contains(std::string(up)),
                      "the key {} of a section of your own is below {}, which is a key", path, up);
  check<UsageError>(
      !row.help.empty() || row.status != KeyStatus::supported || !row.alias_of.empty(),
      "the key {} of a section of your own has no help text", path);
  if (!row.alias_of.empty()) {
    const KeyInfo* meant = find(row.alias_of);
    check<UsageError>(meant && meant->alias_of.empty(),
                      "the key {} of a section of your own is an alias of {}, which is not a key",
                      path, row.alias_of);
  }
  for (const auto& condition : split_words(row.when, '|')) {
    const auto equals = condition.find('=');
    const std::string name = condition.substr(0, equals);
    const KeyInfo* selector = find(name);
    check<UsageError>(
        equals != std::string::npos && selector && selector->alias_of.empty() &&
            default_of(*selector),
        "the key {} of a section of your own applies when {}, and {} is not a key with a default",
        path, condition, name);
    for (const auto& wanted : split_words(std::string_view(condition).substr(equals + 1), ',')) {
      const auto choices = split_words(selector->choices);
      check<UsageError>(
          choices.empty() || std::find(choices.begin(), choices.end(), wanted) != choices.end(),
          "the key {} of a section of your own applies when {}, and {} is never {}", path,
          condition, name, wanted);
    }
  }
}

void KeyTable::add(std::vector<KeyInfo> rows) {
  KeyTable longer = *this;
  for (KeyInfo& row : rows) {
    longer.check_new(row);
    longer.append(std::move(row));
  }
  *this = std::move(longer);
}

const KeyInfo* KeyTable::find(std::string_view path) const {
  auto row = [&](const std::string& name) -> const KeyInfo* {
    auto it = by_path_.find(name);
    return it == by_path_.end() ? nullptr : &keys_[it->second];
  };
  if (auto* exact = row(std::string(path))) return exact;
  for (auto up = parent(path); !up.empty(); up = parent(up))
    if (auto* family = row(std::string(up) + ".*")) return family;
  return nullptr;
}

bool KeyTable::is_section(std::string_view path) const {
  if (sections_.contains(path)) return true;
  for (auto up = parent(path); !up.empty(); up = parent(up))
    if (by_path_.contains(std::string(up) + ".*")) return true;
  return false;
}

std::string KeyTable::nearest(std::string_view path) const {
  // Handles a typing error within the right section, and the right name in the wrong section: the
  // latter costs two, so that "lr" finds optimizer.params.lr and "training.stepz" finds
  // training.steps.
  size_t best = std::string::npos;
  std::string found;
  auto consider = [&](const std::string& known) {
    size_t cost = edit_distance(path, known);
    if (parent(path) != parent(known))
      cost = std::min(cost, 2 + 2 * edit_distance(last_part(path), last_part(known)));
    if (cost < best) {
      best = cost;
      found = known;
    }
  };
  for (const auto& key : keys_)
    if (!key.path.ends_with(".*")) consider(key.path);
  for (const auto& section : sections_) consider(section);
  return found;
}

const Value* KeyTable::default_of(const KeyInfo& key) const {
  auto it = defaults_.find(key.path);
  return it == defaults_.end() ? nullptr : &it->second;
}

const std::vector<KeyInfo>& all_keys() { return KeyTable::built_in()->keys(); }
const KeyInfo* find_key(std::string_view path) { return KeyTable::built_in()->find(path); }
bool is_section(std::string_view path) { return KeyTable::built_in()->is_section(path); }
std::string nearest_key(std::string_view path) { return KeyTable::built_in()->nearest(path); }

}  // namespace trireme
