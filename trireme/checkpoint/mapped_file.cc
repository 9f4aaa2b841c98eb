// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"

namespace trireme {

MappedFile::MappedFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", path, errno_text());
  struct stat st {};
  check<ResourceError>(::fstat(fd.get(), &st) == 0, "cannot stat {}: {}", path, errno_text());
  check<ResourceError>(S_ISREG(st.st_mode), "{} is not a regular file", path);
  size_ = static_cast<size_t>(st.st_size);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  check<ResourceError>(at != MAP_FAILED, "cannot map {} ({} bytes): {}", path, size_, errno_text());
  data_ = static_cast<const uint8_t*>(at);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace trireme
