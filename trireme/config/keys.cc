// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/keys.h"

#include <algorithm>

namespace trireme {

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
