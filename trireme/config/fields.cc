// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/fields.h"

#include <type_traits>

#include "trireme/config/config.h"

namespace trireme {
namespace {

template <class T>
struct WithoutOptional {
  using Type = T;
};
template <class T>
struct WithoutOptional<std::optional<T>> {
  using Type = T;
};

template <class T>
constexpr KeyType key_type() {
  if constexpr (std::is_same_v<T, bool>) return KeyType::boolean;
  if constexpr (std::is_same_v<T, int64_t>) return KeyType::integer;
  if constexpr (std::is_same_v<T, double>) return KeyType::number;
  if constexpr (std::is_same_v<T, std::string>) return KeyType::text;
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return KeyType::integers;
  if constexpr (std::is_same_v<T, std::vector<double>>) return KeyType::numbers;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return KeyType::texts;
}

template <class T>
Value value_of(const T& member) {
  return Value::of(member);
}

template <class T>
Value value_of(const std::vector<T>& members) {
  Value list;
  list.kind = Value::Kind::array;
  for (const T& member : members) list.array.push_back(Value::of(member));
  return list;
}

template <class T>
T read(const Config& config, std::string_view path) {
  if constexpr (std::is_same_v<T, bool>) return config.get_bool(path);
  if constexpr (std::is_same_v<T, int64_t>) return config.get_int(path);
  if constexpr (std::is_same_v<T, double>) return config.get_double(path);
  if constexpr (std::is_same_v<T, std::string>) return config.get_string(path);
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return config.get_int_list(path);
  if constexpr (std::is_same_v<T, std::vector<double>>) return config.get_double_list(path);
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return config.get_string_list(path);
}

}  // namespace

void FieldRows::visit(KeyInfo key, FieldValue member) {
  std::visit(
      [&](auto* at) {
        using Member = std::remove_pointer_t<decltype(at)>;
        using Plain = typename WithoutOptional<Member>::Type;
        key.type = key_type<Plain>();
        if constexpr (std::is_same_v<Member, Plain>)
          key.default_json = value_of(*at).text();
        else if (*at)
          key.default_json = value_of(**at).text();
      },
      member);
  rows.push_back(std::move(key));
}

void FieldReader::visit(KeyInfo key, FieldValue member) {
  config_.note(key.path);
  std::visit(
      [&](auto* at) {
        using Member = std::remove_pointer_t<decltype(at)>;
        using Plain = typename WithoutOptional<Member>::Type;
        if (config_.has(key.path) && config_.applies(key.path))
          *at = read<Plain>(config_, key.path);
        else if constexpr (!std::is_same_v<Member, Plain>)
          at->reset();
      },
      member);
}

}  // namespace trireme
