// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/array_reader.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/zip/crc32.h"

namespace trireme::interop {
namespace {

// A row-major box into its place in the whole.
void place(const Box& box, std::span<const uint8_t> from, const std::vector<int64_t>& shape,
           uint64_t size, std::span<uint8_t> whole) {
  const auto strides = row_major(shape);
  const size_t dims = shape.size();
  const uint64_t run = dims == 0 ? size : static_cast<uint64_t>(box.lengths.back()) * size;
  std::vector<int64_t> at(dims, 0);
  for (uint64_t done = 0; done < from.size(); done += run) {
    int64_t element = 0;
    for (size_t dim = 0; dim < dims; ++dim) element += (box.offsets[dim] + at[dim]) * strides[dim];
    std::memcpy(whole.data() + static_cast<uint64_t>(element) * size, from.data() + done, run);
    for (size_t dim = dims; dim-- > 1;) {  // the last dim is in the run
      if (++at[dim - 1] < box.lengths[dim - 1]) break;
      at[dim - 1] = 0;
    }
  }
}

}  // namespace

std::span<const uint8_t> ArrayReader::file(const std::string& path) {
  auto found = files_.find(path);
  if (found == files_.end()) found = files_.emplace(path, MappedFile(path)).first;
  return found->second.bytes();
}

std::span<const uint8_t> ArrayReader::elements(const NamedArray& box) {
  const auto bytes = file(box.file);
  check<Corrupt>(box.begin <= box.end && box.end <= bytes.size(),
                 "{}: has become shorter while it was read: tensor '{}' ends at byte {} of {}",
                 box.file, shown(box.name), box.end, bytes.size());
  const uint64_t size = box.bytes();
  if (size == 0) return {};
  if (box.contiguous()) return bytes.subspan(box.begin, size);
  // A strided tensor may have each element of its storage often, and need not.
  check<UsageError>(size <= bytes.size(),
                    "{}: tensor '{}' has {} bytes and its file {}: save its clone()", box.file,
                    shown(box.name), size, bytes.size());
  box_.resize(size);
  copy_elements(box, bytes, box_);
  return box_;
}

std::span<const uint8_t> ArrayReader::elements(const BoxedArray& array) {
  if (array.boxes.empty()) return {};
  if (array.boxes.size() == 1) return elements(array.boxes[0].at);
  uint64_t there = 0;
  std::set<std::string> files;
  for (const Box& box : array.boxes)
    if (files.insert(box.at.file).second) there += file(box.at.file).size();
  const Dtype* dtype = find_dtype(array.dtype);
  const int64_t count = element_count(array.shape);
  check<Corrupt>(
      dtype != nullptr && count >= 0 && static_cast<uint64_t>(count) <= there / dtype->size,
      "{}: tensor '{}' is described with more elements than its files have", array.boxes[0].at.file,
      shown(array.name));
  whole_.resize(static_cast<uint64_t>(count) * dtype->size);
  for (const Box& box : array.boxes) place(box, elements(box.at), array.shape, dtype->size, whole_);
  return whole_;
}

void ArrayReader::verify(const NamedArray& box) {
  const auto& record = box.record;
  if (record.begin == record.end || !verified_.emplace(box.file, record.begin).second) return;
  const auto bytes = file(box.file);
  check<Corrupt>(record.end <= bytes.size() &&
                     crc32(bytes.subspan(record.begin, record.end - record.begin)) == record.crc,
                 "{}: the bytes of tensor '{}' do not fit their checksum: take another copy",
                 box.file, shown(box.name));
}

void ArrayReader::verify(const BoxedArray& array) {
  for (const Box& box : array.boxes) verify(box.at);
}

bool ArrayReader::same(const BoxedArray& a, const BoxedArray& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.boxes.size() == 1 && b.boxes.size() == 1) {  // one storage, as tied weights have
    const NamedArray &x = a.boxes[0].at, &y = b.boxes[0].at;
    if (x.file == y.file && x.begin == y.begin && x.strides == y.strides) return true;
  }
  const auto first = elements(a);
  const std::vector<uint8_t> copy(first.begin(), first.end());
  const auto second = elements(b);
  return std::equal(copy.begin(), copy.end(), second.begin(), second.end());
}

}  // namespace trireme::interop
