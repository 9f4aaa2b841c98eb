// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/output_file.h"

#include <fcntl.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file/file_calls.h"

namespace trireme {

OutputFile::OutputFile(const std::string& path, Others others)
    : path_(path),
      fd_(file_calls::open(
          path, O_WRONLY | O_CREAT | O_CLOEXEC | (others == Others::none ? O_EXCL : 0), 0644)) {
  check<ResourceError>(static_cast<bool>(fd_), "cannot create {}: {}", path_, errno_text());
}

void OutputFile::write_at(uint64_t at, const void* bytes, size_t size) {
  end_ = at + size;
  constexpr size_t kMost = size_t{1} << 30;  // pwrite(2) takes less than 2 GiB at once
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    int pretend = failpoint("checkpoint.write");
    ssize_t n = -1;
    if (pretend)
      errno = pretend;
    else
      n = file_calls::pwrite(fd_.get(), from, std::min(size, kMost), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n >= 0, "cannot write {} (after {} bytes): {}", path_, written_,
                         errno_text());
    from += n, at += static_cast<uint64_t>(n), size -= static_cast<size_t>(n),
        written_ += static_cast<uint64_t>(n);
  }
}

void OutputFile::finish() {
  if (file_calls::fsync(fd_.get()) != 0)
    fail<ResourceError>("cannot sync {}: {}", path_, errno_text());
  if (file_calls::close(fd_.release()) != 0)
    fail<ResourceError>("cannot close {}: {}", path_, errno_text());
}

}  // namespace trireme
