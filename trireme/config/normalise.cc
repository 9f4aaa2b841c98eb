// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "trireme/config/config_loader.h"

namespace trireme {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string bounds(const KeyInfo& key, double number) {
  if (number >= key.min && number <= key.max) return {};
  if (std::isinf(key.max)) return fmt::format("must be at least {}, found {}", key.min, number);
  return fmt::format("must be between {} and {}, found {}", key.min, key.max, number);
}

/// Converts one element or the whole value, to an integer (true) or a number.
std::string numeric(const KeyInfo& key, bool whole, const Value& value, Value* out) {
  if (whole) {
    int64_t integer = 0;
    if (!value.to_integer(&integer))
      return fmt::format("expected {}, found {}", type_name(key.type), value.describe());
    *out = Value::of(integer);
  } else {
    double number = 0;
    if (!value.to_number(&number))
      return fmt::format("expected {}, found {}", type_name(key.type), value.describe());
    *out = Value::of(number);
  }
  out->origin = value.origin;
  return bounds(key, out->number);
}

std::string choose(const KeyInfo& key, const Value& value, Value* out) {
  *out = value;
  if (key.choices.empty()) return {};
  for (const auto& choice : split_words(key.choices + " " + key.refused_choices))
    if (same_word(choice, value.string)) {
      out->string = choice;
      return {};
    }
  std::string list = key.choices;
  for (size_t at = 0; (at = list.find(' ', at)) != std::string::npos; at += 2)
    list.replace(at, 1, ", ");
  return fmt::format("{} is not one of {}", json_quote(value.string), list);
}

}  // namespace

std::string normalise(const KeyInfo& key, const Value& value, Value* out) {
  auto expected = [&] {
    return fmt::format("expected {}, found {}", type_name(key.type), value.describe());
  };
  auto list = [&](auto&& element) -> std::string {
    *out = {};
    out->kind = Value::Kind::array;
    out->origin = value.origin;
    // A single value counts as a list of one, except if the table asks for a pair.
    std::vector<Value> one;
    if (!value.is(Value::Kind::array)) one.push_back(value);
    for (const auto& item : one.empty() ? value.array : one) {
      Value taken;
      if (auto why = element(item, &taken); !why.empty()) return why;
      out->array.push_back(std::move(taken));
    }
    return {};
  };
  switch (key.type) {
    case KeyType::any:
      *out = value;
      return {};
    case KeyType::boolean:
      if (!value.is(Value::Kind::boolean)) return expected();
      *out = value;
      return {};
    case KeyType::integer:
      return numeric(key, true, value, out);
    case KeyType::number:
      return numeric(key, false, value, out);
    case KeyType::text:
      if (!value.is(Value::Kind::string)) return expected();
      return choose(key, value, out);
    case KeyType::integers:
      return list([&](const Value& v, Value* o) { return numeric(key, true, v, o); });
    case KeyType::numbers:
      if (!value.is(Value::Kind::array)) return expected();
      return list([&](const Value& v, Value* o) { return numeric(key, false, v, o); });
    case KeyType::texts:
      return list([&](const Value& v, Value* o) -> std::string {
        if (!v.is(Value::Kind::string)) return expected();
        *o = v;
        return {};
      });
  }
  return expected();
}

}  // namespace trireme
