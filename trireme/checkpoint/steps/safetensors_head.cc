// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/safetensors_head.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tuple>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/interop/safetensors_header.h"
#include "trireme/interop/strict_json.h"

namespace trireme {
namespace {

size_t place_of_dtype(const std::string& name) {
  size_t i = 0;
  while (i < kElementSizes.size() && name != kElementSizes[i].dtype) ++i;
  return i;
}

}  // namespace

bool comes_before(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  const size_t x = place_of_dtype(a.dtype), y = place_of_dtype(b.dtype);
  return std::tie(x, a.name) < std::tie(y, b.name);
}

std::string safetensors_head(const std::vector<SafetensorsTensor>& tensors,
                             const std::map<std::string, std::string>& metadata,
                             const std::string& where) {
  std::string text = "{";
  auto comma = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", kSafetensorsMetadata);
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += json_quoted(key, where) + ":" + json_quoted(value, where);
    }
    text += '}';
  }
  int64_t at = 0;
  for (const SafetensorsTensor& t : tensors) {
    check<UsageError>(t.name != kSafetensorsMetadata,
                      "{}: a tensor is called '{}', which safetensors files reserve", where,
                      t.name);
    int64_t end = safetensors_item_size(t.dtype);
    for (int64_t n : t.shape) end *= n;
    end += at;
    comma();
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json_quoted(t.name, where), t.dtype, fmt::join(t.shape, ","), at, end);
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check<UsageError>(text.size() <= interop::kMostSafetensorsHeader,
                    "{}: too many tensors for one file: the header has {} bytes", where,
                    text.size());
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

}  // namespace trireme
