// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/idx.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "trireme/base/check.h"

namespace trireme {
namespace {

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// "train-images" + "idx3-ubyte", joined by '-' or, as some archives have it, by '.'.
std::string find_part(const std::string& folder, const std::string& stem, const std::string& kind) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const char* joint : {"-", "."}) {
    const auto path = folder + "/" + stem + joint + kind;
    if (fs::exists(path, error)) return path;
  }
  const auto path = folder + "/" + stem + "-" + kind;
  check<UsageError>(!fs::exists(path + ".gz", error),
                    "'{}.gz' is compressed: unpack it (gunzip) beside itself first", path);
  fail<UsageError>("'{}' does not exist: data.path must be a folder with the four MNIST IDX files",
                   path);
}

class Images : public DataSource {
 public:
  Images(const std::string& images, const std::string& labels)
      : images_(images, 3), labels_(labels, 1) {
    check<Corrupt>(images_.sizes()[0] == labels_.sizes()[0],
                   "'{}' holds {} images and '{}' {} labels: they do not belong together", images,
                   images_.sizes()[0], labels, labels_.sizes()[0]);
    check<Corrupt>(size() > 0, "'{}' holds no image", images);
    const auto worst = *std::max_element(labels_.data().begin(), labels_.data().end());
    check<Corrupt>(worst < 10, "'{}': a label is {}, above 9: not a file of digits", labels, worst);
    for (int i = 0; i < 256; ++i)
      normalised_[static_cast<size_t>(i)] = normalised_pixel(static_cast<float>(i) / 255.0f);
  }

  int64_t size() const override { return labels_.sizes()[0]; }

  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const auto b = static_cast<int64_t>(ids.size());
    const int64_t rows = images_.sizes()[1], columns = images_.sizes()[2], pixels = rows * columns;
    MicroBatch batch{at::empty({b, 1, rows, columns}, at::dtype(at::kFloat)),
                     at::empty({b}, at::dtype(at::kLong)), ids, b};
    auto* out = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (const auto id : ids) {
      check<UsageError>(id >= 0 && id < size(), "IDX data: no sample {} among {}", id, size());
      const auto image =
          images_.data().subspan(static_cast<size_t>(id * pixels), static_cast<size_t>(pixels));
      for (const auto pixel : image) *out++ = normalised_[pixel];
      *target++ = labels_.data()[static_cast<size_t>(id)];
    }
    return batch;
  }

  std::string describe() const override {
    return fmt::format("IDX: {} images of {}×{}", size(), images_.sizes()[1], images_.sizes()[2]);
  }

 private:
  IdxFile images_, labels_;
  std::array<float, 256> normalised_;
};

}  // namespace

IdxFile::IdxFile(const std::string& path, int dims) : file_(path) {
  const auto bytes = file_.bytes();
  const size_t header = 4 + 4 * static_cast<size_t>(dims);
  check<Corrupt>(bytes.size() < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b,
                 "'{}' is compressed by gzip: unpack it (gunzip) first", path);
  check<Corrupt>(bytes.size() >= header, "'{}' is truncated: {} bytes, and its header alone has {}",
                 path, bytes.size(), header);
  const uint32_t magic = big_endian(bytes.data()),
                 wanted = 0x00000800u + static_cast<uint32_t>(dims);
  check<Corrupt>(
      magic == wanted,
      "'{}' is not an IDX file of bytes with {} dims: its magic is {:#010x}, not {:#010x}", path,
      dims, magic, wanted);
  size_t count = 1;
  for (int i = 0; i < dims; ++i) {
    const size_t size = big_endian(bytes.data() + 4 + 4 * i);
    // Before the product can overflow: no file holds more than its own bytes.
    check<Corrupt>(size == 0 || count <= bytes.size() / size || count == 0,
                   "'{}' is truncated: {} bytes, fewer than its header announces", path,
                   bytes.size());
    sizes_.push_back(static_cast<int64_t>(size));
    count *= size;
  }
  check<Corrupt>(
      bytes.size() - header == count, "'{}' is {}: {} bytes after its header, which announces {}",
      path, bytes.size() - header < count ? "truncated" : "too long", bytes.size() - header, count);
  data_ = bytes.subspan(header);
}

std::shared_ptr<DataSource> open_idx(const std::string& folder, IdxPart part) {
  const std::string stem = part == IdxPart::kTrain ? "train" : "t10k";
  const auto images = find_part(folder, stem + "-images", "idx3-ubyte");
  return std::make_shared<Images>(images, find_part(folder, stem + "-labels", "idx1-ubyte"));
}

}  // namespace trireme
