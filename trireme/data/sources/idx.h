// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/mapped_file.h"
#include "trireme/data/source.h"

namespace trireme {

/// A file of the MNIST kind: big-endian magic 0x00000800 + dims, the sizes, then bytes. Mapped, not
/// copied.
class TRIREME_API IdxFile {
 public:
  /// Throws Corrupt for a wrong magic, a truncated file or one with bytes to spare, with the
  /// counts.
  IdxFile(const std::string& path, int dims);
  const std::vector<int64_t>& sizes() const { return sizes_; }
  std::span<const uint8_t> data() const { return data_; }

 private:
  MappedFile file_;
  std::vector<int64_t> sizes_;
  std::span<const uint8_t> data_;
};

enum class IdxPart { kTrain, kTest };

/// The images and labels of a folder that holds train-images-idx3-ubyte, train-labels-idx1-ubyte
/// and the t10k ones. input [b, 1, rows, columns] float32, (pixel / 255 - 0.1307) / 0.3081; target
/// [b] int64; weight: samples. Throws UsageError (missing, or still compressed) or Corrupt (also:
/// as many labels as images, labels below 10).
TRIREME_API std::shared_ptr<DataSource> open_idx(const std::string& folder, IdxPart part);

/// What a grey pixel becomes, for open_idx and for the digits of data/sources/digits.h alike.
inline float normalised_pixel(float zero_to_one) { return (zero_to_one - 0.1307f) / 0.3081f; }

}  // namespace trireme
