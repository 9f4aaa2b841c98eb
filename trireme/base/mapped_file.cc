// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"

namespace trireme {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  UniqueFd fd(file_calls::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (const int pretended = failpoint("file.open")) {
    fd.reset();
    errno = pretended;
  }
  if (!fd) {
    const int code = errno;
    check<UsageError>(code != ENOENT && code != ENOTDIR, "file '{}' does not exist: check the path",
                      path);
    fail<ResourceError>("cannot read file '{}': {}: make it readable or leave it out", path,
                        errno_text(code));
  }
  struct stat info {};
  if (file_calls::fstat(fd.get(), &info) != 0)
    fail<ResourceError>("cannot stat file '{}': {}", path, errno_text());
  check<UsageError>(S_ISREG(info.st_mode), "'{}' is not a regular file", path);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* p = file_calls::map(fd.get(), size_, 0);
  check<ResourceError>(p != MAP_FAILED,
                       "cannot map file '{}' ({} bytes): {}: the limit may be vm.max_map_count "
                       "(one map for each file)",
                       path, size_, errno_text());
  data_ = static_cast<const uint8_t*>(p);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace trireme
