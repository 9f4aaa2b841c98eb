// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/exchange/export_weights.h"

// Inside of an export: a step's tensors as they are outside.
namespace trireme {

/// The shape that it has outside.
std::vector<int64_t> shape_outside(const IndexTensor& saved, const ExportedTensor& tensor);
uint64_t bytes_outside(const IndexTensor& saved);

/// Its bytes, row-major as outside, in pieces of at most 4 MiB, or as a whole where it is
/// transposed.
void for_each_window(StepReader& step, const ExportedTensor& tensor,
                     const std::function<void(std::span<const uint8_t>)>& body);

/// A text that is UTF-8, or "hex:" and its bytes in hexadecimal digits.
std::string text_or_hex(const std::string& text);

}  // namespace trireme
