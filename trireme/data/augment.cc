// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/augment.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

void check_images(const char* call, const at::Tensor& images, size_t count, const char* what) {
  check<UsageError>(
      images.defined() && images.dim() == 4 && at::isFloatingType(images.scalar_type()),
      "{}: images are [n, channels, height, width] of a float dtype", call);
  check<UsageError>(static_cast<size_t>(images.size(0)) == count, "{}: {} images and {} {}", call,
                    images.size(0), count, what);
}

bool probability(double p) { return p >= 0 && p <= 1; }

void check_options(const AugmentOptions& o) {
  check<UsageError>(o.crop_padding >= 0, "augment: crop_padding is {}: it is a number of pixels",
                    o.crop_padding);
  check<UsageError>(probability(o.horizontal_flip) && probability(o.vertical_flip),
                    "augment: flips have probabilities from 0 to 1, not {} and {}",
                    o.horizontal_flip, o.vertical_flip);
  check<UsageError>(o.degrees >= 0 && o.degrees <= 180,
                    "augment: degrees is {}: the largest angle, from 0 to 180", o.degrees);
}

}  // namespace

at::Tensor rotate(const at::Tensor& images, const std::vector<double>& degrees, double fill) {
  check_images("rotate", images, degrees.size(), "angles");
  if (degrees.empty()) return images.clone();
  const auto height = static_cast<double>(images.size(2)),
             width = static_cast<double>(images.size(3));
  std::vector<double> theta;
  for (const double d : degrees) {
    check<UsageError>(std::isfinite(d), "rotate: an angle is {}", d);
    const double angle = d * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
    // Where each pixel comes from, in coordinates from -1 to 1 along both sides.
    theta.insert(theta.end(), {c, -s * height / width, 0, s * width / height, c, 0});
  }
  const int64_t n = images.size(0);
  const at::Tensor grid = at::affine_grid_generator(
      at::tensor(theta, at::kDouble).to(images.options()).view({n, 2, 3}), images.sizes(), false);
  constexpr int64_t kNearest = 1, kZeros = 0;
  at::Tensor turned = at::grid_sampler(images, grid, kNearest, kZeros, false);
  if (fill == 0) return turned;
  const at::Tensor inside =
      at::grid_sampler(at::ones({n, 1, images.size(2), images.size(3)}, images.options()), grid,
                       kNearest, kZeros, false);
  return turned.masked_fill_(inside.eq(0), fill);
}

at::Tensor augment(const at::Tensor& images, const std::vector<int64_t>& samples, int64_t epoch,
                   const AugmentOptions& options) {
  check_images("augment", images, samples.size(), "samples");
  check_options(options);
  if (samples.empty()) return images.clone();
  const int64_t p = options.crop_padding, height = images.size(2), width = images.size(3);
  const at::Tensor padded =
      p > 0 ? at::constant_pad_nd(images, {p, p, p, p}, options.fill) : images;
  std::vector<at::Tensor> result;
  std::vector<double> angles;
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint64_t key =
        stable_hash({stable_hash("augment"), options.seed, static_cast<uint64_t>(epoch),
                     static_cast<uint64_t>(samples[i])});
    const PhiloxBlock places = philox_block(key, 0, 0), chances = philox_block(key, 0, 1);
    const auto shift = [&](uint32_t bits) {
      return static_cast<int64_t>(uniform01_double(bits, 0) * static_cast<double>(2 * p + 1));
    };
    at::Tensor image = padded[static_cast<int64_t>(i)]
                           .narrow(1, shift(places[0]), height)
                           .narrow(2, shift(places[1]), width);
    std::vector<int64_t> flipped;
    if (uniform01(chances[0]) < options.vertical_flip) flipped.push_back(1);
    if (uniform01(chances[1]) < options.horizontal_flip) flipped.push_back(2);
    result.push_back(flipped.empty() ? image : image.flip(flipped));
    angles.push_back((2 * uniform01_double(places[2], places[3]) - 1) * options.degrees);
  }
  const at::Tensor all = at::stack(result);
  return options.degrees > 0 ? rotate(all, angles, options.fill) : all;
}

}  // namespace trireme
