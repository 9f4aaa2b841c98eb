// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/codec_aten.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>

#include <chrono>

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme::codec_aten {
namespace {

// To a multiple of `multiple`, with zeros.
at::Tensor padded(const at::Tensor& x, int64_t multiple) {
  const int64_t more = (multiple - x.size(-1) % multiple) % multiple;
  return more == 0 ? x : at::constant_pad_nd(x, {0, more}, 0);
}

at::Tensor places_of_bits(const at::Tensor& like) {
  return at::arange(8, like.options().dtype(at::kByte));
}

}  // namespace

void quantize(const at::Tensor& x, int64_t block, const at::Tensor& scales, const at::Tensor& q) {
  const int64_t rows = x.size(0), n = x.size(1);
  const at::Tensor blocks = padded(x, block).view({rows, scales.size(1), block});
  const at::Tensor most = blocks.abs().amax({2});
  // So small that its inverse is none: nothing is sent.
  const at::Tensor none = most.gt(1e-36).logical_not_();
  // A tensor, because CUDA divides by a number by multiplying with its inverse.
  const at::Tensor top = at::full({}, 127, most.options());
  scales.copy_(most.div(top).masked_fill_(none, 0));
  const at::Tensor inverse = top.div(most).masked_fill_(none, 0);
  q.copy_(blocks.mul(inverse.unsqueeze(2)).round_().view({rows, -1}).narrow(1, 0, n));
}

at::Tensor dequantize(const at::Tensor& q, const at::Tensor& scales, int64_t block, float factor) {
  const int64_t rows = q.size(0), blocks = scales.size(1);
  const at::Tensor each = scales.mul(factor)
                              .unsqueeze(2)
                              .expand({rows, blocks, block})
                              .reshape({rows, blocks * block})
                              .narrow(1, 0, q.size(1));
  return q.to(at::kFloat).mul_(each);
}

at::Tensor pack_bits(const at::Tensor& mask) {
  return padded(mask.to(at::kByte), 8)
      .view({-1, 8})
      .bitwise_left_shift(places_of_bits(mask))
      .sum({1}, /*keepdim=*/false, at::kByte);
}

at::Tensor unpack_bits(const at::Tensor& bits, int64_t n) {
  return bits.unsqueeze(1)
      .bitwise_right_shift(places_of_bits(bits))
      .bitwise_and_(1)
      .view({-1})
      .narrow(0, 0, n);
}

at::Tensor pack_signs(const at::Tensor& x) { return pack_bits(x.lt(0)); }

at::Tensor signs(const at::Tensor& bits, int64_t n) {
  return unpack_bits(bits, n).to(at::kFloat).mul_(-2).add_(1);
}

Fetched::Fetched(const at::Tensor& floats)
    : there_(floats.contiguous()), here_(host_buffer(floats.sizes(), at::kFloat, floats.device())) {
  copy_in_stream_order(here_, there_);
  copied_ = DeviceStream::current(there_.device()).record();
}

const float* Fetched::wait(const Group& group) const {
  check<Timeout>(copied_.wait_on_host(Deadline::after(group.timeout())),
                 "compression: {} did not come to the calls of gradients within {:.0f} s",
                 device_text(there_.device()),
                 std::chrono::duration<double>(group.timeout()).count());
  return host_data<float>(here_);
}

}  // namespace trireme::codec_aten
