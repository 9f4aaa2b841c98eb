// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/grad/compression/codec.h"
#include "trireme/grad/compression/top_k_wire.h"
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

/// Bit i: mask[i], which is a bool. (n + 7) / 8 bytes.
at::Tensor pack_bits(const at::Tensor& mask);
/// The first n bits again, as bytes of 0 and 1.
at::Tensor unpack_bits(const at::Tensor& bits, int64_t n);

/// Bit i: x[i] < 0. (n + 7) / 8 bytes.
at::Tensor pack_signs(const at::Tensor& x);
/// −1 where the bit is set, else 1, for the first n bits; in float32.
at::Tensor signs(const at::Tensor& bits, int64_t n);

/// A bool for each element of x, which is flat and finite: whether it is one of the k > 0 of
/// largest magnitude. Of equal ones the first are taken, as by top_k_hook.h's function for the CPU.
at::Tensor largest_elements(const at::Tensor& x, int64_t k);
/// What top_k::Writer writes: `to` has layout.places bytes. The places, ascending, are those of the
/// mask.
void write_places(const top_k::Layout& layout, const at::Tensor& mask, const at::Tensor& places,
                  const at::Tensor& to);
struct ReadPlaces {
  at::Tensor places;  // int64
  at::Tensor valid;   // one bool: as top_k::Reader::valid(). Where it is false, places are anything
};
ReadPlaces read_places(const top_k::Layout& layout, const at::Tensor& from);

/// The rows of a matrix [count, n] as orthonormal ones, in float64 and in place, as gram_schmidt()
/// makes them: each divided by its norm + epsilon; one that the earlier ones make up becomes the
/// row of `instead` (where that is undefined: zeros), made orthonormal likewise.
void orthonormalize(const at::Tensor& rows, double epsilon, const at::Tensor& instead);

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

/// The bucket in int8, as its largest elements and as signs, begun. The bytes are the CPU's, but
/// for the scales of signs, which are near, because the CPU adds magnitudes in float32 and this in
/// float64.
std::unique_ptr<DeviceEncoded> int8(const DeviceCodecInput& in, int64_t block);
/// Products are added in the device's order: near to the CPU's.
struct PowerSgdPart {
  int64_t rows = 0, cols = 0;
  at::Tensor q;  // [rank, cols]: where to begin, and what commit() writes. Undefined: sent whole
  at::Tensor instead;  // [rank, cols], in place of directions that are lost
};
std::unique_ptr<DeviceEncoded> power_sgd(const DeviceCodecInput& in,
                                         std::vector<PowerSgdPart> parts, int64_t rank,
                                         double epsilon);
std::unique_ptr<DeviceEncoded> top_k(const DeviceCodecInput& in, double density);
std::unique_ptr<DeviceEncoded> sign(const DeviceCodecInput& in);

}  // namespace trireme::codec_aten
