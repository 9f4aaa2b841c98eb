// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// The sums of norm_kernels.h as LibTorch operators, for tensors on any device: the same order and
// the same bits, for many tensors at once.
namespace trireme {

class DeviceSquareSums {
 public:
  /// fetch() will write norm_blocks(x.numel()) sums to `out`. x: contiguous, real, of a float
  /// dtype; it is read here, in the order of the current stream.
  void add(const at::Tensor& x, double* out);
  /// One transfer for all of them; waits for it.
  void fetch();

 private:
  struct Place {
    double* out;
    int64_t blocks;
  };
  void make_room(int64_t blocks, const at::TensorOptions& options);
  void reduce();
  at::Tensor rows_;  // a block each, in float64, zeros behind the end of a tensor
  int64_t used_ = 0;
  std::vector<at::Tensor> sums_;
  std::vector<Place> places_;
};

}  // namespace trireme
