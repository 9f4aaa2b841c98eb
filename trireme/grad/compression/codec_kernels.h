// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The loops of the codecs over float32 memory of any alignment. Elementwise results have the same
// bits on every machine: nothing is fused, divided approximately or reordered.
namespace trireme::codec_kernels {

struct Largest {
  float sum;   // of |x + kept|; NaN or an infinity among them gives one that is not finite
  float kept;  // of |kept|
};
/// x += kept.
Largest add_kept(float* x, const float* kept, int64_t n);
float largest(const float* x, int64_t n);
/// Σ x², in float32 lanes by blocks, float64 across them.
double energy(const float* x, int64_t n);
/// Σ |x|, likewise.
double magnitude(const float* x, int64_t n);

/// Blocks of `block` elements, the last one shorter: scale = largest / 127, q = round(x / scale).
void quantize(const float* x, int64_t n, int64_t block, float* scales, int8_t* q);
/// to[i - begin] = q[i] × (scale × factor), for i in [begin, end).
void dequantize(const int8_t* q, const float* scales, int64_t block, int64_t begin, int64_t end,
                float factor, float* to);
/// to[i - begin] += q[i] × scale.
void dequantize_add(const int8_t* q, const float* scales, int64_t block, int64_t begin, int64_t end,
                    float* to);
/// to[i - begin] = from[i - begin] − q[i] × scale; they may be one memory.
void dequantize_subtract(const int8_t* q, const float* scales, int64_t block, int64_t begin,
                         int64_t end, const float* from, float* to);

/// Bit i of `bits`: x[i] < 0. Writes (n + 7) / 8 bytes.
void pack_signs(const float* x, int64_t n, uint8_t* bits);
/// to[i] += bit i ? −scale : scale.
void add_signs(const uint8_t* bits, int64_t n, float scale, float* to);

/// Indices of |x| ≥ least, ascending, until `room` are found; how many.
int64_t collect(const float* x, int64_t n, float least, int32_t* indices, int64_t room);

// Matrices lie row by row, [rows, cols]; their factors as `rank` vectors behind each other.
/// left[j][i] = Σ_k m[i][k] × right[j][k].
void project_rows(const float* m, int64_t rows, int64_t cols, const float* right, int64_t rank,
                  float* left);
/// right[j][k] = Σ_i left[j][i] × m[i][k].
void project_cols(const float* m, int64_t rows, int64_t cols, const float* left, int64_t rank,
                  float* right);
/// to[k] = Σ_j left[j × left_stride] × right[j × right_stride + k], for k below n: a piece of a
/// row.
void row_of_product(const float* left, int64_t left_stride, const float* right,
                    int64_t right_stride, int64_t rank, int64_t n, float* to);

/// to += x.
void add_to(const float* x, int64_t n, float* to);
/// For what is not read again soon.
void copy_past_cache(const float* x, int64_t n, float* to);
/// to = x × factor; error = x − from × factor.
void scale(const float* x, int64_t n, float factor, float* to);
void error_of(const float* x, const float* from, float factor, int64_t n, float* error);

}  // namespace trireme::codec_kernels
