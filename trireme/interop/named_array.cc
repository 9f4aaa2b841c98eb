// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/named_array.h"

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"

namespace trireme::interop {

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t length : shape) {
    if (length < 0) return -1;
    if (length == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, length, &count))
      return -1;
  }
  return empty ? 0 : count;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim > 1; --dim)
    strides[dim - 2] = strides[dim - 1] * (shape[dim - 1] > 0 ? shape[dim - 1] : 1);
  return strides;
}

int64_t NamedArray::elements() const { return element_count(shape); }

uint64_t NamedArray::bytes() const {
  const Dtype* known = find_dtype(dtype);
  check<UsageError>(known != nullptr, "'{}': dtype '{}' is not one we know", name, dtype);
  return static_cast<uint64_t>(elements()) * known->size;
}

bool NamedArray::contiguous() const {
  if (elements() == 0) return true;
  const auto plain = row_major(shape);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] > 1 && strides[dim] != plain[dim]) return false;
  return true;
}

void copy_elements(const NamedArray& array, std::span<const uint8_t> file, std::span<uint8_t> out) {
  const uint64_t bytes = array.bytes();
  check<UsageError>(out.size() == bytes, "'{}' has {} bytes, there is room for {}", array.name,
                    bytes, out.size());
  check<UsageError>(array.begin <= array.end && array.end <= file.size(),
                    "'{}' ends at byte {} of {}, which has {}", array.name, array.end, array.file,
                    file.size());
  if (bytes == 0) return;
  const uint8_t* from = file.data() + array.begin;
  if (array.contiguous()) {
    std::memcpy(out.data(), from, bytes);
    return;
  }
  const uint64_t size = bytes / static_cast<uint64_t>(array.elements());
  std::vector<int64_t> at(array.shape.size(), 0);
  int64_t element = 0;
  for (uint64_t done = 0; done < bytes; done += size) {
    std::memcpy(out.data() + done, from + static_cast<uint64_t>(element) * size, size);
    for (size_t dim = at.size(); dim-- > 0;) {
      if (array.shape[dim] == 1) continue;  // such a dim's stride may be any number
      element += array.strides[dim];
      if (++at[dim] < array.shape[dim]) break;
      element -= array.strides[dim] * array.shape[dim];
      at[dim] = 0;
    }
  }
}

}  // namespace trireme::interop
