// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/data/source.h"

namespace trireme {

struct DigitsOptions {
  int64_t count = 60000;
  uint64_t seed = 42;
  std::string part = "train";  // part of the key: "train" and "validation" share no image
};

/// Handwriting-like digits drawn on the fly in MNIST's format, for machines without MNIST: each
/// glyph is a few strokes, bent, turned, sheared, scaled and moved at random, drawn with a pen of
/// random width and grey, over noise and a stray stroke. Image and label are a pure function of
/// (seed, part, sample id). input [b, 1, 28, 28] float32, scaled as data/sources/idx.h does; target
/// [b] int64; weight: samples.
TRIREME_API std::shared_ptr<DataSource> make_digits(const DigitsOptions& options = {});

}  // namespace trireme
