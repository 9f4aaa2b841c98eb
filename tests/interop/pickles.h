// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/interop/tree.h"

// Pickles by hand, opcode by opcode, and what a reader says of bytes.
namespace trireme::interop::testing {

inline std::string little(uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> 8 * i);
  return out;
}
inline std::string text(std::string_view words) {
  return "X" + little(words.size(), 4) + std::string(words);
}
inline std::string whole(int32_t number) { return "J" + little(static_cast<uint32_t>(number), 4); }
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
/// A whole pickle of protocol 2.
inline std::string pickle(std::string_view body) { return "\x80\x02" + std::string(body) + "."; }
inline std::string tuple(std::string_view items) { return "(" + std::string(items) + "t"; }
inline std::string dict(std::string_view items) { return "}(" + std::string(items) + "u"; }
inline std::string storage(std::string_view cls, std::string_view key, int32_t count) {
  return tuple(text("storage") + global("torch", cls) + text(key) + text("cpu") + whole(count)) +
         "Q";
}
inline std::string tensor(std::string_view storage, int32_t offset, std::string_view shape,
                          std::string_view strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple(std::string(storage) + whole(offset) + tuple(shape) + tuple(strides) + "\x89" +
               global("collections", "OrderedDict") + ")R") +
         "R";
}
/// An instance of a class of data with these attributes.
inline std::string object(std::string_view module, std::string_view name,
                          std::string_view attributes) {
  return global(module, name) + ")\x81" + dict(attributes) + "b";
}

inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// "UsageError: …" or "Corrupt: …", as f throws it; "" where it throws nothing.
inline std::string said(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return std::string("UsageError: ") + error.what();
  } catch (const Corrupt& error) {
    return std::string("Corrupt: ") + error.what();
  }
  return "";
}

}  // namespace trireme::interop::testing

#define EXPECT_SAYS(what, part)                                                    \
  do {                                                                             \
    const std::string said_text = (what);                                          \
    EXPECT_NE(said_text.find(part), std::string::npos) << "'" << said_text << "'"; \
  } while (0)
