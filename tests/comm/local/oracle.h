// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <complex>
#include <cstring>
#include <memory>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/comm/local/engine.h"

// A serial, scalar re-statement of the engine's arithmetic, written without looking at it: the
// order of design §2.
namespace trireme::testing {

inline float half_to_float(uint16_t h) {
  const int sign = h >> 15, exponent = (h >> 10) & 31, fraction = h & 1023;
  double v = exponent == 0    ? std::ldexp(fraction, -24)
             : exponent == 31 ? (fraction ? std::nan("") : INFINITY)
                              : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(sign ? -v : v);
}
inline uint16_t float_to_half(
    float f) {  // nearest even, by search over the two neighbours' midpoint
  uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  double a = std::fabs(static_cast<double>(f));
  if (std::isnan(f)) return 0x7e00 | sign;
  if (a >= 65520.0) return 0x7c00 | sign;
  int e = a == 0 ? -24 : std::max(std::ilogb(a) - 10, -24);
  double q = std::nearbyint(std::ldexp(a, -e));
  if (q >= 2048 && e > -24) q /= 2, ++e;
  uint16_t bits = q < 1024 ? static_cast<uint16_t>(q)
                           : static_cast<uint16_t>(((e + 25) << 10) + (static_cast<int>(q) - 1024));
  return bits | sign;
}
inline float bf16_to_float(uint16_t b) {
  uint32_t u = uint32_t{b} << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline uint16_t float_to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if (std::isnan(f)) return static_cast<uint16_t>(u >> 16 | 0x40);
  uint32_t low = u & 0xffff, high = u >> 16;
  if (low > 0x8000 || (low == 0x8000 && (high & 1))) ++high;
  return static_cast<uint16_t>(high);
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const U x = static_cast<U>(a), y = static_cast<U>(b);
    switch (op) {
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      case ReduceOp::product:
        return static_cast<T>(static_cast<U>(uint64_t{x} * uint64_t{y}));
      case ReduceOp::band:
        return static_cast<T>(x & y);
      case ReduceOp::bor:
        return static_cast<T>(x | y);
      case ReduceOp::bxor:
        return static_cast<T>(x ^ y);
      default:
        return static_cast<T>(static_cast<U>(x + y));
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::min || op == ReduceOp::max) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      return op == ReduceOp::min ? std::min(a, b) : std::max(a, b);
    }
    return op == ReduceOp::product ? a * b : a + b;
  } else {
    if (op != ReduceOp::product) return a + b;
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
}

template <class T>
T tree(ReduceOp op, const std::vector<T>& v, size_t lo, size_t hi) {
  if (hi - lo == 1) return v[lo];
  size_t p = 1;
  while (p * 2 < hi - lo) p *= 2;
  return combine(op, tree(op, v, lo, lo + p), tree(op, v, lo + p, hi));
}

template <class Stored, class T, class Load, class Save>
std::vector<unsigned char> oracle_as(ReduceOp op, const std::vector<std::vector<unsigned char>>& in,
                                     Load load, Save save) {
  std::vector<unsigned char> out(in[0].size());
  std::vector<T> v(in.size());
  for (size_t i = 0; i < out.size() / sizeof(Stored); ++i) {
    for (size_t q = 0; q < in.size(); ++q) {
      Stored s;
      std::memcpy(&s, in[q].data() + i * sizeof s, sizeof s);
      v[q] = load(s);
    }
    T t = tree(op, v, 0, v.size());
    if constexpr (std::is_floating_point_v<T>)
      if (op == ReduceOp::avg) t *= static_cast<T>(1.0 / double(in.size()));
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      if (op == ReduceOp::avg) t *= static_cast<typename T::value_type>(1.0 / double(in.size()));
    Stored s = save(t);
    std::memcpy(out.data() + i * sizeof s, &s, sizeof s);
  }
  return out;
}

inline std::vector<unsigned char> oracle_reduce(local::DType t, ReduceOp op,
                                                const std::vector<std::vector<unsigned char>>& in) {
  auto same = [](auto v) { return v; };
  using local::DType;
  switch (t) {
    case DType::f64:
      return oracle_as<double, double>(op, in, same, same);
    case DType::f32:
      return oracle_as<float, float>(op, in, same, same);
    case DType::f16:
      return oracle_as<uint16_t, float>(op, in, half_to_float, float_to_half);
    case DType::bf16:
      return oracle_as<uint16_t, float>(op, in, bf16_to_float, float_to_bf16);
    case DType::i64:
      return oracle_as<int64_t, int64_t>(op, in, same, same);
    case DType::i32:
      return oracle_as<int32_t, int32_t>(op, in, same, same);
    case DType::u8:
      return oracle_as<uint8_t, uint8_t>(op, in, same, same);
    case DType::i16:
      return oracle_as<int16_t, int16_t>(op, in, same, same);
    case DType::i8:
      return oracle_as<int8_t, int8_t>(op, in, same, same);
    case DType::c64:
      return oracle_as<std::complex<float>, std::complex<float>>(op, in, same, same);
    case DType::c128:
      return oracle_as<std::complex<double>, std::complex<double>>(op, in, same, same);
  }
  return {};
}

constexpr local::DType kEveryType[] = {local::DType::f64,  local::DType::f32, local::DType::f16,
                                       local::DType::bf16, local::DType::i64, local::DType::i32,
                                       local::DType::u8,   local::DType::i16, local::DType::i8,
                                       local::DType::c64,  local::DType::c128};
constexpr ReduceOp kEveryOp[] = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                                 ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};
/// Whether this dtype has this reduction.
constexpr bool defined_for(local::DType t, ReduceOp op) {
  if (is_bitwise(op)) return local::is_integer(t);
  if (op == ReduceOp::avg) return !local::is_integer(t);
  return !local::is_complex(t) || (op != ReduceOp::min && op != ReduceOp::max);
}

/// For products, floats near one: nothing overflows, which would end in NaNs of any sign.
inline std::vector<unsigned char> random_values(local::DType t, size_t count, uint64_t seed,
                                                ReduceOp op = ReduceOp::sum) {
  using local::DType;
  std::vector<unsigned char> bytes(count * local::size_of(t));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t first = mix64(seed * 0x9E3779B97F4A7C15u + i), second = mix64(first);
    const double u = static_cast<double>(first >> 11) * 0x1p-53;
    const double w = static_cast<double>(second >> 11) * 0x1p-53;
    double x = (u - 0.5) * static_cast<double>(1 << second % 12), y = (w - 0.5) * 16;
    if (op == ReduceOp::product) x = (second & 1 ? -0.75 : 0.75) + 0.5 * u, y = 0.5 * w;
    auto put = [&](auto v) { std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v); };
    switch (t) {
      case DType::f64:
        put(x);
        break;
      case DType::f32:
        put(static_cast<float>(x));
        break;
      case DType::f16:
        put(float_to_half(static_cast<float>(x)));
        break;
      case DType::bf16:
        put(float_to_bf16(static_cast<float>(x)));
        break;
      case DType::i64:
        put(static_cast<int64_t>(first));
        break;
      case DType::i32:
        put(static_cast<int32_t>(first));
        break;
      case DType::u8:
      case DType::i8:
        put(static_cast<uint8_t>(first));
        break;
      case DType::i16:
        put(static_cast<int16_t>(first));
        break;
      case DType::c64:
        put(std::complex<float>(static_cast<float>(x), static_cast<float>(y)));
        break;
      case DType::c128:
        put(std::complex<double>(x, y));
        break;
    }
  }
  return bytes;
}

/// Buffers of a rank, in the arena or in ordinary memory, alive until the end of the scope.
class Buffers {
 public:
  Buffers(local::Engine& e, bool arena) : e_(e), arena_(arena) {}
  ~Buffers() {
    for (void* p : taken_) arena_ ? e_.host().deallocate(p) : std::free(p);
  }
  void* take(const std::vector<unsigned char>& bytes) {
    void* p = arena_ ? e_.host().allocate(bytes.size()) : std::malloc(bytes.size() + 1);
    if (!bytes.empty()) std::memcpy(p, bytes.data(), bytes.size());
    taken_.push_back(p);
    return p;
  }

 private:
  local::Engine& e_;
  bool arena_;
  std::vector<void*> taken_;
};

}  // namespace trireme::testing
