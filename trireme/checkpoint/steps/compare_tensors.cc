// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/compare_tensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/element_size.h"

namespace trireme {
namespace {

constexpr int64_t kWindow = int64_t{4} << 20;  // bytes of each side

double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}
double from_bfloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
double from_float(float x) { return x; }
double from_double(double x) { return x; }

template <class T, class ToDouble>
double float_distance(T a, T b, const ToDouble& to_double) {
  return std::fabs(to_double(a) - to_double(b));
}
template <class T>
double int_distance(T a, T b) {
  return static_cast<double>(a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                   : static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
}

class Comparer {
 public:
  Comparer(double tolerance, TensorComparison* found) : tolerance_(tolerance), found_(found) {}

  template <class T, class Distance>
  void compare(std::span<const uint8_t> a, std::span<const uint8_t> b, int64_t begin,
               const Distance& distance) {
    for (size_t at = 0; at < a.size(); at += sizeof(T)) {
      if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) == 0) continue;
      T x, y;
      std::memcpy(&x, a.data() + at, sizeof x);
      std::memcpy(&y, b.data() + at, sizeof y);
      add(begin + static_cast<int64_t>(at / sizeof(T)), distance(x, y));
    }
  }

  std::optional<int64_t> first() const { return first_beyond_ ? first_beyond_ : first_; }

 private:
  void add(int64_t index, double d) {
    ++found_->differing;
    if (std::isnan(d) || d > found_->largest) found_->largest = d;
    if (!first_) first_ = index;
    if (d <= tolerance_) return;
    found_->within = false;
    if (!first_beyond_) first_beyond_ = index;
  }

  double tolerance_;
  TensorComparison* found_;
  std::optional<int64_t> first_, first_beyond_;
};

void compare_windows(Comparer& to, const std::string& dtype, std::span<const uint8_t> a,
                     std::span<const uint8_t> b, int64_t begin) {
  const auto floats = [](auto to_double) {
    return [to_double](auto x, auto y) { return float_distance(x, y, to_double); };
  };
  const auto ints = [](auto x, auto y) { return int_distance(x, y); };
  if (dtype == "F64") return to.compare<double>(a, b, begin, floats(from_double));
  if (dtype == "F32") return to.compare<float>(a, b, begin, floats(from_float));
  if (dtype == "F16") return to.compare<uint16_t>(a, b, begin, floats(from_half));
  if (dtype == "BF16") return to.compare<uint16_t>(a, b, begin, floats(from_bfloat));
  if (dtype == "I64") return to.compare<int64_t>(a, b, begin, ints);
  if (dtype == "I32") return to.compare<int32_t>(a, b, begin, ints);
  if (dtype == "I16") return to.compare<int16_t>(a, b, begin, ints);
  if (dtype == "I8") return to.compare<int8_t>(a, b, begin, ints);
  return to.compare<uint8_t>(a, b, begin, ints);
}

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  return n;
}

std::vector<int64_t> index_in(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) index[d] = element % shape[d];
  return index;
}

}  // namespace

bool shapes_fit(const CheckpointIndex& a, const std::vector<int64_t>& shape_a,
                const CheckpointIndex& b, const std::vector<int64_t>& shape_b) {
  if (shape_a == shape_b) return true;
  const bool a_lost = a.version == 2 && shape_a.size() == 1;
  const bool b_lost = b.version == 2 && shape_b.size() == 1;
  return (a_lost || b_lost) && numel_of(shape_a) == numel_of(shape_b);
}

TensorComparison compare_tensors(StepReader& a, StepReader& b, const std::string& name,
                                 double tolerance) {
  const IndexTensor& tensor = a.index().tensors.at(name);
  const int64_t each = safetensors_item_size(tensor.dtype);
  check<Corrupt>(each > 0, "{}: tensor '{}': dtype '{}' is not one we read", a.folder(), name,
                 tensor.dtype);
  const int64_t numel = numel_of(tensor.shape());
  TensorComparison found;
  Comparer comparer(tolerance, &found);
  for (int64_t begin = 0; begin < numel;) {
    const int64_t count = std::min(numel - begin, kWindow / each);
    const auto x = a.read(name, begin, count), y = b.read(name, begin, count);
    if (std::memcmp(x.data(), y.data(), x.size()) != 0)
      compare_windows(comparer, tensor.dtype, x, y, begin);
    begin += count;
  }
  if (const auto first = comparer.first()) {
    const auto& other = b.index().tensors.at(name).shape();
    found.first = index_in(tensor.shape().size() < other.size() ? other : tensor.shape(), *first);
  }
  return found;
}

}  // namespace trireme
