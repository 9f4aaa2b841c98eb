// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/digits.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/idx.h"

namespace trireme {
namespace {

constexpr int kSide = 28;

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;

// Angles in turns, clockwise from the right (y grows downwards).
void arc(Stroke& s, float cx, float cy, float rx, float ry, float from, float to, int steps) {
  for (int i = 0; i <= steps; ++i) {
    const float a = 2 * std::numbers::pi_v<float> *
                    (from + (to - from) * static_cast<float>(i) / static_cast<float>(steps));
    s.push_back({cx + rx * std::cos(a), cy + ry * std::sin(a)});
  }
}

// In a box of [-1, 1] each way.
std::array<std::vector<Stroke>, 10> make_glyphs() {
  std::array<std::vector<Stroke>, 10> g;
  Stroke s;
  arc(s, 0, 0, .6f, .9f, 0, 1, 14);
  g[0] = {s};
  g[1] = {{{-.35f, -.55f}, {.05f, -.9f}, {.05f, .9f}}};
  s.clear();
  arc(s, 0, -.42f, .52f, .48f, -.55f, .12f, 8);
  s.push_back({-.55f, .88f});
  s.push_back({.6f, .88f});
  g[2] = {s};
  s.clear();
  arc(s, -.05f, -.45f, .5f, .43f, -.42f, .25f, 7);
  arc(s, -.05f, .42f, .58f, .46f, -.25f, .4f, 8);
  g[3] = {s};
  g[4] = {{{.25f, .9f}, {.25f, -.9f}, {-.65f, .3f}, {.65f, .3f}}};
  s = {{.5f, -.88f}, {-.4f, -.88f}, {-.48f, -.1f}};
  arc(s, -.02f, .34f, .56f, .52f, -.33f, .38f, 8);
  g[5] = {s};
  s = {{.35f, -.9f}, {-.2f, -.45f}};
  arc(s, 0, .38f, .5f, .5f, .5f, -.5f, 11);
  g[6] = {s};
  g[7] = {{{-.58f, -.88f}, {.58f, -.88f}, {-.12f, .9f}}};
  s.clear();
  arc(s, 0, -.45f, .42f, .43f, 0, 1, 10);
  g[8] = {s};
  s.clear();
  arc(s, 0, .44f, .52f, .46f, 0, 1, 11);
  g[8].push_back(s);
  s.clear();
  arc(s, 0, -.38f, .5f, .5f, 0, 1, 11);
  s.push_back({.42f, .1f});
  s.push_back({.15f, .9f});
  g[9] = {s};
  return g;
}

// The numbers of one sample, in order.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}
  uint32_t bits() {
    if (next_ == 4) block_ = philox_block(key_, 0, index_++), next_ = 0;
    return block_[next_++];
  }
  float between(float low, float high) { return low + (high - low) * uniform01(bits()); }

 private:
  uint64_t key_, index_ = 0;
  PhiloxBlock block_{};
  size_t next_ = 4;
};

using Image = std::array<float, kSide * kSide>;

// A line of the pen: full inside `radius`, fading over one pixel.
void draw_line(Image& image, Point a, Point b, float radius, float ink) {
  const float reach = radius + 1;
  const int x0 = std::max(0, static_cast<int>(std::floor(std::min(a.x, b.x) - reach)));
  const int x1 = std::min(kSide - 1, static_cast<int>(std::ceil(std::max(a.x, b.x) + reach)));
  const int y0 = std::max(0, static_cast<int>(std::floor(std::min(a.y, b.y) - reach)));
  const int y1 = std::min(kSide - 1, static_cast<int>(std::ceil(std::max(a.y, b.y) + reach)));
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float inverse = 1 / std::max(dx * dx + dy * dy, 1e-6f);
  for (int y = y0; y <= y1; ++y)
    for (int x = x0; x <= x1; ++x) {
      const float px = static_cast<float>(x) - a.x, py = static_cast<float>(y) - a.y;
      const float t = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
      const float ex = px - t * dx, ey = py - t * dy;
      const float value = ink * std::clamp(reach - std::sqrt(ex * ex + ey * ey), 0.0f, 1.0f);
      auto& pixel = image[static_cast<size_t>(y * kSide + x)];
      pixel = std::max(pixel, value);
    }
}

class Digits : public DataSource {
 public:
  explicit Digits(const DigitsOptions& options)
      : options_(options),
        key_(stable_hash({options.seed, stable_hash(options.part)})),
        glyphs_(make_glyphs()) {
    check<UsageError>(options.count >= 1, "digits: a count of {}: at least 1 is needed",
                      options.count);
  }

  int64_t size() const override { return options_.count; }

  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const auto b = static_cast<int64_t>(ids.size());
    MicroBatch batch{at::empty({b, 1, kSide, kSide}, at::dtype(at::kFloat)),
                     at::empty({b}, at::dtype(at::kLong)), ids, b};
    auto* out = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (const auto id : ids) {
      *target++ = draw(id, out);
      out += kSide * kSide;
    }
    return batch;
  }

  std::string describe() const override {
    return fmt::format("digits: {} drawn images of {}×{} ({})", options_.count, kSide, kSide,
                       options_.part);
  }

 private:
  int64_t draw(int64_t id, float* out) const {
    Draws draws(stable_hash({key_, static_cast<uint64_t>(id)}));
    const auto digit = static_cast<size_t>(below(uint64_t{draws.bits()} << 32, 10));
    const float angle = draws.between(-.4f, .4f), shear = draws.between(-.4f, .4f);
    const float sx = 9.5f * draws.between(.6f, 1.1f), sy = 10.0f * draws.between(.65f, 1.1f);
    const float cx = 13.5f + draws.between(-3, 3), cy = 13.5f + draws.between(-3, 3);
    const float radius = draws.between(.4f, 1.5f), ink = draws.between(.5f, 1.0f);
    const float bend_x = draws.between(-.2f, .2f), bend_y = draws.between(-.2f, .2f);
    const float cosine = std::cos(angle), sine = std::sin(angle);
    auto place = [&](Point p) -> Point {
      p.x += bend_x * p.y * p.y + shear * p.y + draws.between(-.09f, .09f);
      p.y += bend_y * p.x * p.x + draws.between(-.09f, .09f);
      return {cx + sx * (cosine * p.x - sine * p.y), cy + sy * (sine * p.x + cosine * p.y)};
    };

    Image image{};
    for (const auto& stroke : glyphs_[digit]) {
      Point before = place(stroke[0]);
      for (size_t i = 1; i < stroke.size(); ++i) {
        const Point here = place(stroke[i]);
        draw_line(image, before, here, radius, ink);
        before = here;
      }
    }
    const Point stray{draws.between(0, kSide - 1), draws.between(0, kSide - 1)};
    draw_line(image, stray, {stray.x + draws.between(-5, 5), stray.y + draws.between(-5, 5)}, .3f,
              .5f);

    const float noise = draws.between(.02f, .3f);
    const uint64_t noise_key = uint64_t{draws.bits()} << 32 | draws.bits();
    for (size_t i = 0; i < image.size(); i += 4) {
      const auto block = philox_block(noise_key, 1, i);
      for (size_t k = 0; k < 4; ++k) {
        const float grain = noise * (2 * uniform01(block[k]) - 1);
        out[i + k] = normalised_pixel(std::clamp(image[i + k] + grain, 0.0f, 1.0f));
      }
    }
    return static_cast<int64_t>(digit);
  }

  DigitsOptions options_;
  uint64_t key_;
  std::array<std::vector<Stroke>, 10> glyphs_;
};

}  // namespace

std::shared_ptr<DataSource> make_digits(const DigitsOptions& options) {
  return std::make_shared<Digits>(options);
}

}  // namespace trireme
