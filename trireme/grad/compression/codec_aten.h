// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "trireme/grad/compression/codec.h"
#include "trireme/tensor/device.h"

// Loops of codec_kernels.h as LibTorch operators, for float32 tensors on any device: the same
// numbers, rounded in the same places, so that where a device's operators round as IEEE says the
// bytes are the CPU's. Nothing waits for the device.
namespace trireme::codec_aten {

/// Rows of n elements in blocks of `block`, the last one shorter: scales [rows, ⌈n / block⌉] and q
/// [rows, n] (int8) are written. scale = largest / 127, q = round(x / scale).
void quantize(const at::Tensor& x, int64_t block, const at::Tensor& scales, const at::Tensor& q);
/// q × (scale × factor), [rows, n] in float32.
at::Tensor dequantize(const at::Tensor& q, const at::Tensor& scales, int64_t block, float factor);

/// Bit i: x[i] < 0. (n + 7) / 8 bytes.
at::Tensor pack_signs(const at::Tensor& x);
/// −1 where the bit is set, else 1, for the first n bits; in float32.
at::Tensor signs(const at::Tensor& bits, int64_t n);

/// A few floats of the device that the host wants: their copy is under way from construction on.
class Fetched {
 public:
  Fetched() = default;
  explicit Fetched(const at::Tensor& floats);
  /// Blocks; a Timeout after the group's. They are in host memory.
  const float* wait(const Group& group) const;

 private:
  at::Tensor there_, here_;
  DeviceEvent copied_;
};

/// The bucket in int8 and as signs, begun. Int8's bytes are the CPU's; sign's but for its scales,
/// which are near, because the CPU adds magnitudes in float32 and this in float64.
std::unique_ptr<DeviceEncoded> int8(const DeviceCodecInput& in, int64_t block);
std::unique_ptr<DeviceEncoded> sign(const DeviceCodecInput& in);

}  // namespace trireme::codec_aten
