// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/exchange/export_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/interop/pickle/utf8.h"

namespace trireme {
namespace {

constexpr int64_t kExportWindow = int64_t{4} << 20;  // bytes

int64_t numel_of(const IndexTensor& saved) {
  int64_t n = 1;
  for (int64_t size : saved.shape()) n *= size;
  return n;
}

// Square tiles, so that both sides are read and written in whole cache lines.
void transpose(std::span<const uint8_t> from, std::span<uint8_t> to, int64_t rows, int64_t columns,
               int64_t each) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          std::memcpy(to.data() + (c * rows + r) * each, from.data() + (r * columns + c) * each,
                      static_cast<size_t>(each));
}

}  // namespace

std::vector<int64_t> shape_outside(const IndexTensor& saved, const ExportedTensor& tensor) {
  std::vector<int64_t> shape = saved.shape();
  check<UsageError>(!tensor.transposed || shape.size() == 2,
                    "'{}' has {} dims, and is no matrix as a layer of GPT-2 is", tensor.name,
                    shape.size());
  if (tensor.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

uint64_t bytes_outside(const IndexTensor& saved) {
  return static_cast<uint64_t>(numel_of(saved) * safetensors_item_size(saved.dtype));
}

void for_each_window(StepReader& step, const ExportedTensor& tensor,
                     const std::function<void(std::span<const uint8_t>)>& body) {
  const IndexTensor& saved = step.index().tensors.at(tensor.name);
  const int64_t numel = numel_of(saved), each = safetensors_item_size(saved.dtype);
  check<Corrupt>(each > 0, "{}: tensor '{}': dtype '{}' is not one we read", step.folder(),
                 tensor.name, saved.dtype);
  if (numel == 0) return;
  if (!tensor.transposed) {
    for (int64_t begin = 0; begin < numel; begin += kExportWindow / each)
      body(step.read(tensor.name, begin, std::min(kExportWindow / each, numel - begin)));
    return;
  }
  const auto shape = shape_outside(saved, tensor);
  std::vector<uint8_t> turned(static_cast<size_t>(numel * each));
  transpose(step.read(tensor.name, 0, numel), turned, shape[1], shape[0], each);
  body(turned);
}

std::string text_or_hex(const std::string& text) {
  if (interop::valid_utf8(text)) return text;
  std::string hex = "hex:";
  for (unsigned char c : text) hex += fmt::format("{:02x}", c);
  return hex;
}

}  // namespace trireme
