// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

// Boxes tile the whole exactly when each point is in one of them: when the sum of their indicator
// functions is the indicator of the whole. Such a function is known by its mixed differences, which
// for a box are +1 and -1 at its 2^d corners: so the corners of all boxes must cancel but for those
// of the whole.
namespace trireme {
namespace {

constexpr size_t kMaxDims = 16;

class Corners {
 public:
  // Dims that every box spans do not count.
  Corners(const std::vector<int64_t>& shape, const std::vector<PlacedBox>& boxes) {
    for (size_t d = 0; d < shape.size(); ++d)
      if (std::any_of(boxes.begin(), boxes.end(),
                      [&](const PlacedBox& b) { return b.lengths[d] != shape[d]; }))
        dims_.push_back(d);
  }
  size_t dims() const { return dims_.size(); }
  void add(const std::vector<int64_t>& offsets, const std::vector<int64_t>& lengths, int sign) {
    std::vector<int64_t> corner(dims_.size());
    for (size_t mask = 0; mask < size_t{1} << dims_.size(); ++mask) {
      int s = sign;
      for (size_t i = 0; i < dims_.size(); ++i) {
        const bool end = mask >> i & 1;
        corner[i] = offsets[dims_[i]] + (end ? lengths[dims_[i]] : 0);
        if (end) s = -s;
      }
      const auto at = sums_.emplace(corner, 0).first;
      if ((at->second += s) == 0) sums_.erase(at);
    }
  }
  bool none() const { return sums_.empty(); }

 private:
  std::vector<size_t> dims_;
  std::map<std::vector<int64_t>, int64_t> sums_;
};

// Of one dim: which elements.
std::string fault_in_ranges(int64_t size, std::vector<std::pair<int64_t, int64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  auto text = [](int64_t begin, int64_t end, const char* what) {
    return fmt::format("elements {} to {} are in {}", begin, end - 1, what);
  };
  int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin > at) return text(at, begin, "none");
    if (begin < at) return text(begin, std::min(at, end), "two parts");
    at = end;
  }
  return at == size ? "" : text(at, size, "none");
}

}  // namespace

std::string fault_in_tiling(const std::vector<int64_t>& shape,
                            const std::vector<const Slice*>& slices) {
  if (slices.size() == 1 && slices[0]->is_whole()) return "";
  int64_t numel = 1;
  for (int64_t n : shape) numel *= n;
  if (numel == 0) return slices.size() == 1 ? "" : "an empty tensor in two parts";
  if (shape.size() == 1) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const Slice* s : slices) {
      const int64_t begin = s->offsets[0] + (s->flat ? s->flat->begin : 0);
      if (s->numel() > 0) ranges.emplace_back(begin, begin + s->numel());
    }
    return fault_in_ranges(numel, std::move(ranges));
  }
  std::vector<PlacedBox> boxes;
  for (const Slice* s : slices)
    for (PlacedBox& box : boxes_of(*s)) boxes.push_back(std::move(box));
  Corners corners(shape, boxes);
  if (corners.dims() > kMaxDims) return fmt::format("cut in more than {} dims", kMaxDims);
  int64_t covered = 0;
  for (const PlacedBox& box : boxes) {
    int64_t n = 1;
    for (int64_t length : box.lengths) n *= length;
    if (n > numel - std::min(covered, numel)) return "elements are in two parts";
    covered += n;
    corners.add(box.offsets, box.lengths, 1);
  }
  if (covered < numel)
    return fmt::format("{} of {} elements are in no part", numel - covered, numel);
  corners.add(std::vector<int64_t>(shape.size(), 0), shape, -1);
  return corners.none() ? "" : "elements are in two parts, and others in none";
}

}  // namespace trireme
