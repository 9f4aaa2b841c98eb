// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/output_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/size_limit.h"

namespace trireme {

OutputFile::OutputFile(const std::string& path, Others others)
    : path_(path),
      fd_(file_calls::open(
          path, O_WRONLY | O_CREAT | O_CLOEXEC | (others == Others::none ? O_EXCL : 0), 0644)) {
  check<ResourceError>(static_cast<bool>(fd_), "cannot create {}: {}", path_, errno_text());
}

void OutputFile::reserve(uint64_t at, uint64_t size) {
  check_file_size(path_, at + size);
  int result = 0;
  do {
    result = file_calls::fallocate(fd_.get(), static_cast<off_t>(at), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return;
  fail<ResourceError>("cannot write {} (there is no room for {} bytes): {}", path_, size,
                      errno_text());
}

void OutputFile::write_at(uint64_t at, const void* bytes, size_t size) {
  check_file_size(path_, at + size);
  if (at != end_) waits_from_ = at;
  end_ = at + size;
  const char* from = static_cast<const char*>(bytes);
  const size_t before = (kPage - at % kPage) % kPage;
  const bool alike = reinterpret_cast<uintptr_t>(from) % kPage == at % kPage;
  constexpr size_t kWorthIt = size_t{64} << 10;
  if (direct_ && alike && size >= before + kWorthIt && set_direct(true)) {
    const size_t whole = (size - before) / kPage * kPage;
    write_some(at + before, from + before, whole);
    set_direct(false);
    write_some(at, from, before);
    write_some(at + before + whole, from + before + whole, size - before - whole);
    waits_from_ = end_;
    return;
  }
  write_some(at, from, size);
  begin_writeback(end_);
}

// Without it all that was written waits in memory until finish(), and the disk has nothing to do.
// Only a hint: it changes nothing of what is on disk after a crash, and errors come with fsync().
void OutputFile::begin_writeback(uint64_t end) {
  constexpr uint64_t kTogether = uint64_t{8} << 20;
  if (end - waits_from_ < kTogether) return;
  ::sync_file_range(fd_.get(), static_cast<off64_t>(waits_from_),
                    static_cast<off64_t>(end - waits_from_), SYNC_FILE_RANGE_WRITE);
  waits_from_ = end;
}

// False where the file system has no such writes.
bool OutputFile::set_direct(bool on) {
  if (on == direct_now_) return true;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
    direct_ = false;
    return false;
  }
  direct_now_ = on;
  return true;
}

void OutputFile::write_some(uint64_t at, const char* from, size_t size) {
  constexpr size_t kMost = size_t{1} << 30;  // pwrite(2) takes less than 2 GiB at once
  while (size > 0) {
    int pretend = failpoint("checkpoint.write");
    ssize_t n = -1;
    if (pretend)
      errno = pretend;
    else
      n = file_calls::pwrite(fd_.get(), from, std::min(size, kMost), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    // Some file systems take the flag and refuse the write, or what a short one has left.
    if (n < 0 && errno == EINVAL && direct_now_ && set_direct(false)) {
      direct_ = false;
      continue;
    }
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
