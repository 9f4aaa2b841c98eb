// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/output_file.h"
#include "trireme/interop/pickle/pickle_writer.h"
#include "trireme/interop/torch_file.h"
#include "trireme/interop/zip/zip_writer.h"

namespace trireme::interop {
namespace {

std::span<const uint8_t> bytes_of_text(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// Takes the unfinished file away unless it was published.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void write_torch_file(const std::string& path, const Tree& tree,
                      const std::function<std::span<const uint8_t>(size_t)>& bytes_of) {
  const std::string values = write_pickle(tree);
  const std::string beside = path + "." + std::to_string(::getpid()) + ".unfinished";
  OutputFile file(beside);
  const Unfinished unfinished(beside);  // from here on it is ours to take away
  ZipWriter zip([&](const void* bytes, size_t size) { file.write(bytes, size); });
  zip.add("archive/data.pkl", bytes_of_text(values));
  zip.add("archive/byteorder", bytes_of_text("little"));
  for (size_t i = 0; i < tree.storages.size(); ++i) {
    const auto bytes = bytes_of(i);
    check<UsageError>(bytes.size() == tree.storages[i].bytes,
                      "storage {} has {} bytes; {} were given for it", i, tree.storages[i].bytes,
                      bytes.size());
    zip.add("archive/data/" + tree.storages[i].key, bytes);
  }
  zip.add("archive/version", bytes_of_text("3\n"));
  zip.finish();
  file.finish();
  if (std::rename(unfinished.path().c_str(), path.c_str()) != 0)
    fail<ResourceError>("cannot rename {} to {}: {}", unfinished.path(), path, errno_text());
  const auto folder = std::filesystem::path(path).parent_path().string();
  fsync_path(folder.empty() ? "." : folder);
}

}  // namespace trireme::interop
