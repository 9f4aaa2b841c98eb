// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <map>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// Visits the tensors in what a forward takes or returns: a tensor, or an optional, tuple, pair,
// array, vector or map of tensors, nested to any depth (an LSTM returns a tensor and a pair of
// tensors).
namespace trireme::detail {

template <class T>
concept IsTensor = std::is_same_v<T, at::Tensor>;
// c10::optional in LibTorch 1.13, std::optional later.
template <class T>
concept IsOptional = requires(T& t) {
  typename T::value_type;
  { t.has_value() } -> std::same_as<bool>;
  *t;
};
template <class T>
concept IsTuple = requires {
  std::tuple_size<T>::value;
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::bool_constant<!std::is_same_v<T, bool>> {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class T>
struct IsMap<std::map<K, T>> : std::true_type {};
template <class K, class T>
struct IsMap<std::unordered_map<K, T>> : std::true_type {};

/// Whether each_tensor() looks for tensors in this type.
template <class T>
constexpr bool may_hold_tensors() {
  if constexpr (IsTensor<T>)
    return true;
  else if constexpr (IsOptional<T> || IsVector<T>::value)
    return may_hold_tensors<typename T::value_type>();
  else if constexpr (IsMap<T>::value)
    return may_hold_tensors<typename T::mapped_type>();
  else if constexpr (IsTuple<T>)
    return []<size_t... i>(std::index_sequence<i...>) {
      return (may_hold_tensors<std::tuple_element_t<i, T>>() || ...);
    }
  (std::make_index_sequence<std::tuple_size_v<T>>());
  else return false;
}

/// Calls f(tensor) for each defined tensor, in order; f may replace the tensor.
template <class T, class F>
void each_tensor(T& value, const F& f) {
  if constexpr (!may_hold_tensors<T>()) {
    return;
  } else if constexpr (IsTensor<T>) {
    if (value.defined()) f(value);
  } else if constexpr (IsOptional<T>) {
    if (value.has_value()) each_tensor(*value, f);
  } else if constexpr (IsVector<T>::value) {
    for (auto& item : value) each_tensor(item, f);
  } else if constexpr (IsMap<T>::value) {
    for (auto& item : value) each_tensor(item.second, f);
  } else {
    std::apply([&](auto&... items) { (each_tensor(items, f), ...); }, value);
  }
}

}  // namespace trireme::detail
