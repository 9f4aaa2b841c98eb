// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/keys.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace trireme {
namespace {

struct Index {
  std::vector<KeyInfo> keys;
  std::unordered_map<std::string, size_t> by_path;
  std::set<std::string, std::less<>> sections;
};

Index build() {
  Index index;
  index.keys = detail::supported_keys();
  for (auto& key : detail::precision_keys()) index.keys.push_back(std::move(key));
  for (auto part : {detail::recompute_keys, detail::activation_checkpointing_keys,
                    detail::balance_keys, detail::data_efficiency_keys, detail::zero_keys,
                    detail::offload_keys, detail::other_deepspeed_keys})
    for (auto& key : part()) index.keys.push_back(std::move(key));
  for (size_t i = 0; i < index.keys.size(); ++i) {
    const std::string& path = index.keys[i].path;
    index.by_path.emplace(path, i);
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
      index.sections.insert(path.substr(0, dot));
  }
  return index;
}

const Index& key_index() {
  static const Index index = build();
  return index;
}

std::string_view last_part(std::string_view path) {
  auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent(std::string_view path) {
  auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

}  // namespace

const std::vector<KeyInfo>& all_keys() { return key_index().keys; }

const KeyInfo* find_key(std::string_view path) {
  const auto& index = key_index();
  auto row = [&](const std::string& name) -> const KeyInfo* {
    auto it = index.by_path.find(name);
    return it == index.by_path.end() ? nullptr : &index.keys[it->second];
  };
  if (auto* exact = row(std::string(path))) return exact;
  for (auto up = parent(path); !up.empty(); up = parent(up))
    if (auto* family = row(std::string(up) + ".*")) return family;
  return nullptr;
}

bool is_section(std::string_view path) {
  if (key_index().sections.contains(path)) return true;
  for (auto up = parent(path); !up.empty(); up = parent(up))
    if (key_index().by_path.contains(std::string(up) + ".*")) return true;
  return false;
}

std::string nearest_key(std::string_view path) {
  // A slip of the pen inside the right section, or a right name in the wrong section: the latter
  // costs two, so that "lr" finds optimizer.params.lr and "training.stepz" finds training.steps.
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
  for (const auto& key : key_index().keys)
    if (!key.path.ends_with(".*")) consider(key.path);
  for (const auto& section : key_index().sections) consider(section);
  return found;
}

std::string_view type_name(KeyType type) {
  switch (type) {
    case KeyType::any:
      return "any value";
    case KeyType::boolean:
      return "true or false";
    case KeyType::integer:
      return "an integer";
    case KeyType::number:
      return "a number";
    case KeyType::text:
      return "a string";
    case KeyType::integers:
      return "an integer or an array of integers";
    case KeyType::numbers:
      return "an array of numbers";
    case KeyType::texts:
      return "a string or an array of strings";
  }
  return "any value";
}

std::string_view status_name(KeyStatus status) {
  switch (status) {
    case KeyStatus::supported:
      return "supported";
    case KeyStatus::without_effect:
      return "accepted without effect";
    case KeyStatus::refused:
      return "refused";
  }
  return "refused";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest =
      200;  // what a file may hold is longer; its tail changes no suggestion
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t replace = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::vector<std::string> split_words(std::string_view words, char separator) {
  std::vector<std::string> out;
  while (!words.empty()) {
    auto end = std::min(words.find(separator), words.size());
    if (end > 0) out.emplace_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

}  // namespace trireme
