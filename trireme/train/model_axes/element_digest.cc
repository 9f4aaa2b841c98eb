// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/element_digest.h"

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

// The last steps of splitmix64: each bit of the sum changes half of the bits of the result.
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class Word>
uint64_t sum_of(const char* bytes, int64_t n, uint64_t first, uint64_t dtype) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    Word word;
    std::memcpy(&word, bytes + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
    const uint64_t place = (first + static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    sum += mixed(mixed(place + dtype) ^ word);
  }
  return sum;
}

}  // namespace

int64_t element_digest(const at::Tensor& t, int64_t begin, int64_t end, int64_t first) {
  const at::Tensor here = t.detach().contiguous().cpu();
  check<UsageError>(begin >= 0 && begin <= end && end <= here.numel(),
                    "element_digest: elements {} to {} of {}", begin, end, here.numel());
  const auto width = static_cast<int64_t>(here.element_size());
  // Complex numbers are two words each.
  const int64_t words = width == 16 ? 2 : 1, n = (end - begin) * words;
  const auto from = static_cast<uint64_t>(first * words);
  const auto dtype = static_cast<uint64_t>(here.scalar_type());
  if (n == 0) return 0;
  const char* bytes = host_bits<const char>(here) + begin * width;
  switch (width / words) {
    case 1:
      return static_cast<int64_t>(sum_of<uint8_t>(bytes, n, from, dtype));
    case 2:
      return static_cast<int64_t>(sum_of<uint16_t>(bytes, n, from, dtype));
    case 4:
      return static_cast<int64_t>(sum_of<uint32_t>(bytes, n, from, dtype));
    default:
      return static_cast<int64_t>(sum_of<uint64_t>(bytes, n, from, dtype));
  }
}

}  // namespace trireme
