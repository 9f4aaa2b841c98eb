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

std::span<const uint8_t> ArrayReader::file_of(const NamedArray& box) {
  const auto bytes = file(box.file);
  check<Corrupt>(box.begin <= box.end && box.end <= bytes.size(),
                 "{}: has become shorter while it was read: tensor '{}' ends at byte {} of {}",
                 box.file, shown(box.name), box.end, bytes.size());
  // A strided tensor may have each element of its storage often, and need not.
  const uint64_t size = box.bytes();
  check<UsageError>(size <= bytes.size() || box.contiguous(),
                    "{}: tensor '{}' has {} bytes and its file {}: save its clone()", box.file,
                    shown(box.name), size, bytes.size());
  return bytes;
}

std::span<const uint8_t> ArrayReader::elements(const NamedArray& box) {
  const auto bytes = file_of(box);
  const uint64_t size = box.bytes();
  if (size == 0) return {};
  if (box.contiguous()) return bytes.subspan(box.begin, size);
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

bool ArrayReader::same(const NamedArray& a, const NamedArray& b) {
  if (a.file == b.file && a.begin == b.begin && a.strides == b.strides)
    return true;  // one storage, as tied weights have
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  const auto first = file_of(a), second = file_of(b);
  std::vector<uint8_t> x, y;
  for (uint64_t at = 0, size = a.bytes(); at < size; at += x.size()) {
    x.resize(std::min(kPiece, size - at));
    y.resize(x.size());
    copy_range(a, first, at, x);
    copy_range(b, second, at, y);
    if (x != y) return false;
  }
  return true;
}

bool ArrayReader::same(const BoxedArray& a, const BoxedArray& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  const auto& boxes = b.boxes;
  if (std::equal(a.boxes.begin(), a.boxes.end(), boxes.begin(), boxes.end(),
                 [](const Box& x, const Box& y) {
                   return x.offsets == y.offsets && x.lengths == y.lengths;
                 })) {
    for (size_t i = 0; i < boxes.size(); ++i)
      if (!same(a.boxes[i].at, boxes[i].at)) return false;
    return true;
  }
  const auto first = elements(a);
  const std::vector<uint8_t> copy(first.begin(), first.end());
  const auto second = elements(b);
  return std::equal(copy.begin(), copy.end(), second.begin(), second.end());
}

void copy_range(const NamedArray& box, std::span<const uint8_t> file, uint64_t at,
                std::span<uint8_t> out) {
  if (out.empty()) return;
  if (box.contiguous()) {
    std::memcpy(out.data(), file.data() + box.begin + at, out.size());
    return;
  }
  // The end of a row, then whole rows, then the beginning of one.
  const uint64_t all = box.bytes(), size = all / static_cast<uint64_t>(box.elements());
  const uint64_t row = all / static_cast<uint64_t>(box.shape[0]);
  while (!out.empty()) {
    const uint64_t rows = at % row == 0 ? out.size() / row : 0;
    const uint64_t bytes = rows > 0 ? rows * row : std::min<uint64_t>(row - at % row, out.size());
    NamedArray some = box;
    if (at >= row) some.begin += at / row * static_cast<uint64_t>(box.strides[0]) * size;
    if (rows > 0) {
      some.shape[0] = static_cast<int64_t>(rows);
      copy_elements(some, file, out.first(bytes));
    } else {
      some.shape.erase(some.shape.begin());
      some.strides.erase(some.strides.begin());
      copy_range(some, file, at % row, out.first(bytes));
    }
    at += bytes;
    out = out.subspan(bytes);
  }
}

}  // namespace trireme::interop
