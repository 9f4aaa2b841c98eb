// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/base/export.h"

// Encodes values of C++ types as bytes for other processes: numbers, bool, enums, std::string,
// vector, array, map, unordered_map, set, pair, tuple, optional, and structs that name their
// members:
//
//   struct Sample {
//     int id;
//     std::string name;
//     TRIREME_FIELDS(id, name)
//   };
//
// Types of other libraries are encoded by a specialisation of encoding::Custom, which may put large
// memory beside the bytes (encoding::Attachment).
//
// The bytes record their type; decoding them as another type is an error that names both. Decoding
// checks every bound and never executes anything from the bytes. Floating-point values keep their
// bits.
//
// Layout, little-endian: "TRob", u16 version, u16 0, u32 length of the type's text, the text, u64
// length of the value, the value: numbers as they are in memory, lengths of strings and containers
// as u64 before them, optional as one byte and the value.
namespace trireme {

#define TRIREME_FIELDS(...)                      \
  template <class Visitor>                       \
  void trireme_fields(Visitor&& visitor) {       \
    visitor(__VA_ARGS__);                        \
  }                                              \
  template <class Visitor>                       \
  void trireme_fields(Visitor&& visitor) const { \
    visitor(__VA_ARGS__);                        \
  }

/// The bytes of `value`. UsageError where some of its memory would have to travel beside them.
template <class T>
std::string encode(const T& value);
/// Throws Corrupt if the bytes are damaged, Mismatch if they are of another type or a newer
/// version.
template <class T>
T decode(std::string_view bytes);

namespace encoding {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

struct Ignore {
  template <class... A>
  void operator()(A&&...) {}
};
template <class T>
concept Struct = requires(T& t) {
  t.trireme_fields(Ignore());
};
template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <class T, template <class...> class Template>
struct IsA : std::false_type {};
template <template <class...> class Template, class... A>
struct IsA<Template<A...>, Template> : std::true_type {};
template <class T>
struct IsArray : std::false_type {};
template <class T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

/// Memory that travels beside the bytes of a value.
struct Attachment {
  std::shared_ptr<const void> data;
  uint64_t bytes = 0;
};

/// Where a value goes or comes from, for a Custom that needs to know: of values in remote calls,
/// the other worker (rpc/transit.h).
class TRIREME_API Transit {
 public:
  virtual ~Transit();
};

/// How a type of another library is encoded:
///   static std::string type();                // its text, "tensor"
///   static void put(Writer&, const T&);
///   static void get(Reader&, T&);             // bounded, from bytes that anybody may have sent
template <class T>
struct Custom;
template <class T>
concept HasCustom = requires {
  { Custom<T>::type() } -> std::convertible_to<std::string>;
};

template <class T>
concept MapLike = IsA<T, std::map>::value || IsA<T, std::unordered_map>::value;
template <class T>
concept TupleLike = IsA<T, std::tuple>::value || IsA<T, std::pair>::value;

/// Whether values of T can be encoded and decoded, looking through containers but not into the
/// members of structs, which are checked where they are used.
template <class T>
consteval bool can_encode() {
  if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) <= 8;
  else if constexpr (Plain<T> || std::is_same_v<T, std::string> || HasCustom<T> || Struct<T>)
    return true;
  else if constexpr (MapLike<T>)
    return can_encode<typename T::key_type>() && can_encode<typename T::mapped_type>();
  else if constexpr (IsA<T, std::vector>::value || IsA<T, std::set>::value || IsArray<T>::value ||
                     IsA<T, std::optional>::value)
    return can_encode<typename T::value_type>();
  else if constexpr (TupleLike<T>)
    return []<size_t... I>(std::index_sequence<I...>) {
      return (can_encode<std::remove_cv_t<std::tuple_element_t<I, T>>>() && ...);
    }
  (std::make_index_sequence<std::tuple_size_v<T>>());
  else return false;
}

/// "i32", "[str]", "{str:f64}", "<i32,str>" (a struct, by its members), "^" (a struct nested in
/// itself).
template <class T>
std::string type_text(std::vector<std::type_index> outer = {}) {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_enum_v<T>) {
    return type_text<std::underlying_type_t<T>>();
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "long double has no common layout");
    return sizeof(T) == 8 ? "f64" : "f32";
  } else if constexpr (std::is_integral_v<T>) {
    return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "str";
  } else if constexpr (HasCustom<T>) {
    return Custom<T>::type();
  } else if constexpr (IsA<T, std::vector>::value || IsA<T, std::set>::value) {
    return "[" + type_text<typename T::value_type>(outer) + "]";
  } else if constexpr (IsArray<T>::value) {
    return "[" + type_text<typename T::value_type>(outer) + "*" +
           std::to_string(std::tuple_size_v<T>) + "]";
  } else if constexpr (MapLike<T>) {
    return "{" + type_text<typename T::key_type>(outer) + ":" +
           type_text<typename T::mapped_type>(outer) + "}";
  } else if constexpr (IsA<T, std::optional>::value) {
    return "?" + type_text<typename T::value_type>(outer);
  } else if constexpr (TupleLike<T>) {
    std::string text;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((text += (text.empty() ? "" : ",") + type_text<std::tuple_element_t<I, T>>(outer)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
    return "(" + text + ")";
  } else {
    static_assert(Struct<T>, "this type needs TRIREME_FIELDS(members…)");
    for (const auto& seen : outer)
      if (seen == typeid(T)) return "^";
    outer.push_back(typeid(T));
    std::string text;
    auto visit = [&](auto&... members) {
      ((text +=
        (text.empty() ? "" : ",") + type_text<std::remove_cvref_t<decltype(members)>>(outer)),
       ...);
    };
    T example{};
    example.trireme_fields(visit);
    return "<" + text + ">";
  }
}

class Writer {
 public:
  Writer() = default;
  /// Goes on behind `begun`.
  explicit Writer(std::string begun) : bytes_(std::move(begun)) {}

  template <class T>
  void put(const T& v) {
    if constexpr (HasCustom<T>) {
      Custom<T>::put(*this, v);
    } else if constexpr (Plain<T>) {
      bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
    } else if constexpr (std::is_same_v<T, std::string>) {
      length(v.size());
      bytes_ += v;
    } else if constexpr (IsA<T, std::vector>::value || IsA<T, std::set>::value) {
      length(v.size());
      all(v);
    } else if constexpr (IsArray<T>::value) {
      all(v);
    } else if constexpr (MapLike<T>) {
      length(v.size());
      for (const auto& [key, value] : v) put(key), put(value);
    } else if constexpr (IsA<T, std::optional>::value) {
      put(v.has_value());
      if (v) put(*v);
    } else if constexpr (TupleLike<T>) {
      std::apply([this](const auto&... parts) { (this->put(parts), ...); }, v);
    } else {
      v.trireme_fields([this](const auto&... members) { (this->put(members), ...); });
    }
  }
  /// For a Custom: these bytes as they are.
  void put_bytes(const void* from, size_t n) {
    if (n > 0) bytes_.append(static_cast<const char*>(from), n);
  }
  /// For a Custom: the reader's attachment() returns them in this order.
  void attach(Attachment attachment) { attachments_.push_back(std::move(attachment)); }
  /// For a Custom: memory that somebody else holds too is attached as a copy, because the value is
  /// read after others may have changed it.
  bool copies_shared() const { return copies_shared_; }
  void copy_shared() { copies_shared_ = true; }
  /// For a Custom: where the value goes; null: nowhere that is known. Kept by whoever set it.
  Transit* transit() const { return transit_; }
  void set_transit(Transit* transit) { transit_ = transit; }

  std::string take() { return std::move(bytes_); }
  std::vector<Attachment> take_attachments() { return std::move(attachments_); }

 private:
  void length(size_t n) { put(static_cast<uint64_t>(n)); }
  template <class C>
  void all(const C& list) {
    using E = typename C::value_type;
    if constexpr (Plain<E> && !std::is_same_v<E, bool> && requires { list.data(); })
      bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(E));
    else
      for (const E& e : list) put(e);
  }

  std::string bytes_;
  std::vector<Attachment> attachments_;
  bool copies_shared_ = false;
  Transit* transit_ = nullptr;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes, std::vector<Attachment> attachments = {})
      : left_(bytes), attachments_(std::move(attachments)) {}
  template <class T>
  void get(T& v) {
    if constexpr (HasCustom<T>) {
      Custom<T>::get(*this, v);
    } else if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte;
      take(&byte, 1);
      if (byte > 1) corrupt("a bool is neither 0 nor 1");
      v = byte;
    } else if constexpr (Plain<T>) {
      take(&v, sizeof v);
    } else if constexpr (std::is_same_v<T, std::string>) {
      v.resize(length(1));
      take(v.data(), v.size());
    } else if constexpr (IsA<T, std::vector>::value) {
      using E = typename T::value_type;
      if constexpr (Plain<E> && !std::is_same_v<E, bool>) {
        v.resize(length(sizeof(E)));
        take(v.data(), v.size() * sizeof(E));
      } else {
        v.clear();
        for (size_t n = length(1); n > 0; --n) v.push_back(one<E>());
      }
    } else if constexpr (IsA<T, std::set>::value) {
      v.clear();
      for (size_t n = length(1); n > 0; --n) v.insert(one<typename T::value_type>());
    } else if constexpr (IsArray<T>::value) {
      for (auto& e : v) get(e);
    } else if constexpr (MapLike<T>) {
      v.clear();
      for (size_t n = length(1); n > 0; --n) {
        auto key = one<typename T::key_type>();
        v.emplace(std::move(key), one<typename T::mapped_type>());
      }
    } else if constexpr (IsA<T, std::optional>::value) {
      v.reset();
      if (one<bool>()) v = one<typename T::value_type>();
    } else if constexpr (TupleLike<T>) {
      std::apply([this](auto&... parts) { (this->get(parts), ...); }, v);
    } else {
      Nesting nesting(*this);
      v.trireme_fields([this](auto&... members) { (this->get(members), ...); });
    }
  }
  bool done() const { return left_.empty() && next_attachment_ == attachments_.size(); }
  /// For a Custom: where the value comes from; null: from nowhere that is known.
  Transit* transit() const { return transit_; }
  void set_transit(Transit* transit) { transit_ = transit; }

  /// For a Custom: the next one. Corrupt: there is none left.
  TRIREME_API Attachment attachment();
  /// For a Custom: copies `n` bytes. Corrupt: there are fewer.
  TRIREME_API void take(void* to, size_t n);
  [[noreturn]] TRIREME_API static void corrupt(const char* what);

 private:
  static constexpr int kDeepest = 200;  // nested structs: hostile bytes must not exhaust the stack
  struct Nesting {
    explicit Nesting(Reader& reader) : r(reader) {
      if (++r.depth_ > kDeepest) corrupt("structs are nested too deep");
    }
    ~Nesting() { --r.depth_; }
    Reader& r;
  };
  template <class T>
  T one() {
    T v{};
    get(v);
    return v;
  }
  /// Reads a length; Corrupt if the remaining bytes cannot hold that many elements of `each` bytes.
  TRIREME_API size_t length(size_t each);

  std::string_view left_;
  std::vector<Attachment> attachments_;
  size_t next_attachment_ = 0;
  int depth_ = 0;
  Transit* transit_ = nullptr;
};

TRIREME_API std::string with_header(const std::string& type, std::string value);
/// The bytes of the value, once the header has been checked.
TRIREME_API std::string_view without_header(const std::string& type, std::string_view bytes);
[[noreturn]] TRIREME_API void left_over();
[[noreturn]] TRIREME_API void not_bytes_alone(const std::string& type);

}  // namespace encoding

template <class T>
std::string encode(const T& value) {
  encoding::Writer writer;
  writer.put(value);
  if (!writer.take_attachments().empty()) encoding::not_bytes_alone(encoding::type_text<T>());
  return encoding::with_header(encoding::type_text<T>(), writer.take());
}

template <class T>
T decode(std::string_view bytes) {
  encoding::Reader reader(encoding::without_header(encoding::type_text<T>(), bytes));
  T value{};
  reader.get(value);
  if (!reader.done()) encoding::left_over();
  return value;
}

}  // namespace trireme
