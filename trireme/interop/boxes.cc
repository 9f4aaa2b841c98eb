// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/boxes.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr size_t kMostBoxes = 16384;  // of one tensor: they are compared in pairs

bool overlap(const Box& a, const Box& b) {
  for (size_t dim = 0; dim < a.offsets.size(); ++dim)
    if (a.offsets[dim] >= b.offsets[dim] + b.lengths[dim] ||
        b.offsets[dim] >= a.offsets[dim] + a.lengths[dim])
      return false;
  return true;
}

bool inside(const Box& box, const std::vector<int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.lengths.size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (box.offsets[dim] < 0 || box.lengths[dim] < 0 || box.offsets[dim] > shape[dim] ||
        box.lengths[dim] > shape[dim] - box.offsets[dim])
      return false;
  return true;
}

}  // namespace

void check_boxes(BoxedArray& array, const std::string& where) {
  const std::string what = where + ": tensor '" + shown(array.name) + "'";
  const int64_t total = element_count(array.shape);
  check<Corrupt>(total >= 0, "{} has more than 2^63 elements", what);
  check<UsageError>(array.boxes.size() <= kMostBoxes,
                    "{} is in {} pieces; the most that we read is {}", what, array.boxes.size(),
                    kMostBoxes);
  std::sort(array.boxes.begin(), array.boxes.end(),
            [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
  int64_t covered = 0;
  for (const Box& box : array.boxes) {
    check<Corrupt>(inside(box, array.shape), "{} has a piece beyond its shape", what);
    // Inside the shape, so this does not overflow; the sum is at most total unless pieces overlap.
    const int64_t count = element_count(box.lengths);
    check<Corrupt>(count <= total - covered, "{} has pieces that overlap", what);
    covered += count;
  }
  check<Corrupt>(covered == total, "{} has {} elements, its pieces {}", what, total, covered);
  std::erase_if(array.boxes, [](const Box& box) { return element_count(box.lengths) == 0; });
  if (array.shape.empty()) return;
  for (size_t i = 0; i < array.boxes.size(); ++i)
    for (size_t j = i + 1; j < array.boxes.size(); ++j) {
      const Box &a = array.boxes[i], &b = array.boxes[j];
      if (b.offsets[0] >= a.offsets[0] + a.lengths[0]) break;
      check<Corrupt>(!overlap(a, b), "{} has pieces that overlap", what);
    }
}

std::string path_inside(const std::string& folder, const std::string& name,
                        const std::string& where) {
  bool good = !name.empty() && name.front() != '/' && name.size() < 4096;
  for (unsigned char c : name) good = good && c >= 0x20 && c != 0x7f;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    good = good && name.substr(begin, slash - begin) != "..";
    begin = slash + 1;
  }
  check<Corrupt>(good, "{}: names a file '{}', which is not in its folder", where, shown(name));
  return folder + "/" + name;
}

}  // namespace trireme::interop
