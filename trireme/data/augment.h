// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

// Images changed at random while they are read.
namespace trireme {

/// In this order, each as torchvision's transform of that name does it.
struct AugmentOptions {
  /// RandomCrop(the image's own size, padding): so many pixels of `fill` on each side, and then a
  /// window of the image's size somewhere in what that makes.
  int64_t crop_padding = 0;
  double horizontal_flip = 0;  // RandomHorizontalFlip(p)
  double vertical_flip = 0;    // RandomVerticalFlip(p)
  double degrees = 0;          // RandomRotation(degrees): by an angle of at most so many
  double fill = 0;             // what comes in from outside: a black pixel, scaled as images are
  uint64_t seed = 0;
};

/// images: [n, channels, height, width] of a float dtype; samples: the id of each. What happens to
/// an image is a function of (seed, epoch, id): the same on any number of ranks, loader threads and
/// micro-batches, and another one in each epoch. Returns new images; those given do not change.
/// UsageError for other shapes, and for options outside of their range. Threads: any.
TRIREME_API at::Tensor augment(const at::Tensor& images, const std::vector<int64_t>& samples,
                               int64_t epoch, const AugmentOptions& options);

/// Turns each image about its centre by its angle, counter-clockwise, to the nearest pixel:
/// torchvision.transforms.functional.rotate(). images as above; degrees: one for each.
TRIREME_API at::Tensor rotate(const at::Tensor& images, const std::vector<double>& degrees,
                              double fill = 0);

}  // namespace trireme
