// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/rank_label.h"
#include "trireme/base/trace.h"
#include "trireme/shard/offload/offload_queue.h"

namespace trireme {
namespace {

using detail::OffloadQueue;
using detail::OffloadRegion;
using detail::OffloadRequest;

constexpr size_t kAlignment = OffloadFile::kAlignment;

void check_options(const OffloadFileOptions& o) {
  constexpr size_t kMostBlock = size_t{1} << 30;  // one system call moves less than 2 GiB
  check<UsageError>(!o.folder.empty(), "offload: no folder is named: where may the file go?");
  check<UsageError>(
      o.block_size >= kAlignment && o.block_size % kAlignment == 0 && o.block_size <= kMostBlock,
      "offload: block_size is {}: it must be a multiple of {}, at most {}", o.block_size,
      kAlignment, kMostBlock);
  check<UsageError>(o.queue_depth >= 1 && o.queue_depth <= 4096,
                    "offload: queue_depth is {}: it must be 1 to 4096", o.queue_depth);
  check<UsageError>(o.timeout > Duration::zero(), "offload: the timeout must be above zero");
}

// O_TMPFILE never has a name; where the file system lacks it, the name is gone at once.
UniqueFd open_nameless(const std::string& folder) {
  struct stat s {};
  const bool there = file_calls::stat(folder, &s) == 0;
  check<ResourceError>(there, "offload folder {}: {}", folder, errno_text());
  check<ResourceError>(S_ISDIR(s.st_mode), "offload folder {} is not a folder", folder);
  UniqueFd fd(file_calls::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (!fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
    std::random_device random;
    const std::string path =
        fmt::format("{}/.trireme-offload-{}-{:08x}", folder, ::getpid(), random());
    fd.reset(file_calls::open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (fd) file_calls::unlink(path);
  }
  check<ResourceError>(static_cast<bool>(fd),
                       "cannot make an offload file in {}: {}. Name a folder that this user may "
                       "write to",
                       folder, errno_text());
  return fd;
}

// The file has `from` bytes and is to have `end`.
void reserve(int fd, const std::string& folder, uint64_t from, uint64_t end) {
  if (end <= from) return;
  const uint64_t bytes = end - from;
  rlimit limit{};
  // Beyond it the kernel sends SIGXFSZ, which would end the process.
  check<ResourceError>(::getrlimit(RLIMIT_FSIZE, &limit) != 0 || end <= limit.rlim_cur,
                       "offload needs a file of {} bytes in {}, but this process may write files "
                       "of {} at most: raise 'ulimit -f'",
                       end, folder, limit.rlim_cur);
  struct statvfs v {};
  const bool known = file_calls::fstatvfs(fd, &v) == 0;
  const uint64_t free = static_cast<uint64_t>(v.f_bavail) * v.f_frsize;
  int error = failpoint("offload.reserve");
  // Asked first, so that a disk which is too small is not filled up on the way to the error.
  if (!error && known && free < bytes) error = ENOSPC;
  const auto offset = static_cast<off64_t>(from), size = static_cast<off64_t>(bytes);
  if (!error && file_calls::fallocate(fd, offset, size) != 0) error = errno;
  if (error == EOPNOTSUPP || error == ENOSYS) error = file_calls::posix_fallocate(fd, offset, size);
  if (error == ENOSPC || error == EDQUOT)
    fail<ResourceError>(
        "offload needs {} bytes in {}, the disk has {} free ({}): free some space or name another "
        "folder",
        bytes, folder, free, errno_text(error));
  check<ResourceError>(error == 0, "offload: cannot reserve {} bytes in {}: {}", bytes, folder,
                       errno_text(error));
}

// Some file systems take the flag and refuse the reads.
bool try_direct(int fd, uint64_t bytes) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (bytes < kAlignment || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return false;
  const auto memory = offload_memory(kAlignment);
  if (file_calls::pread(fd, memory.get(), kAlignment, 0) == static_cast<ssize_t>(kAlignment))
    return true;
  ::fcntl(fd, F_SETFL, flags);
  return false;
}

}  // namespace

struct OffloadFile::Request::Impl {
  std::shared_ptr<OffloadQueue> queue;
  Duration timeout;
  std::shared_ptr<OffloadRequest> request;
};

struct OffloadFile::Impl {
  Impl(const OffloadFileOptions& o, uint64_t n) : options(o), bytes(n) {
    check_options(options);
    options.timeout = std::min<Duration>(options.timeout, std::chrono::years(1));  // no overflow
    UniqueFd fd = open_nameless(options.folder);
    reserve(fd.get(), options.folder, 0, bytes);
    direct = options.direct && try_direct(fd.get(), bytes);
    std::unique_ptr<detail::OffloadIo> io;
    if (options.engine != OffloadEngine::threads)
      io = detail::make_io_uring(fd.get(), options.queue_depth, &why_not);
    check<ResourceError>(io || options.engine != OffloadEngine::io_uring,
                         "offload: io_uring was asked for and cannot be used here ({}): choose the "
                         "engine 'threads'",
                         why_not);
    if (!io) io = detail::make_thread_io(fd.get());
    queue = std::make_shared<OffloadQueue>(
        std::move(fd), std::move(io),
        OffloadQueue::Options{"the offload file in " + options.folder, options.block_size, direct,
                              thread_rank()});
  }
  ~Impl() {
    // A disk that does not answer keeps the thread and its memory; nobody can take them from the
    // kernel.
    if (!queue->drain(options.timeout)) new std::shared_ptr<OffloadQueue>(queue);
  }

  std::shared_ptr<OffloadRegion> region(uint64_t offset, size_t n, bool write) {
    std::lock_guard lock(mutex);
    check<UsageError>(
        n > 0 && offset % kAlignment == 0 && n % kAlignment == 0 && n <= bytes &&
            offset <= bytes - n,
        "offload: {} bytes at {}: both must be multiples of {}, inside the file's {} bytes", n,
        offset, kAlignment, bytes);
    auto found = regions.find(offset);
    if (found != regions.end() && found->second->bytes == n) return found->second;
    check<UsageError>(write, "offload: {} bytes at {} were never written as such", n, offset);
    auto next = regions.lower_bound(offset);
    check<UsageError>((next == regions.end() || next->first >= offset + n) &&
                          (next == regions.begin() ||
                           std::prev(next)->first + std::prev(next)->second->bytes <= offset),
                      "offload: {} bytes at {} overlap a region that was written with other bounds",
                      n, offset);
    auto made = std::make_shared<OffloadRegion>();
    made->offset = offset;
    made->bytes = n;
    return regions[offset] = made;
  }

  Request post(uint64_t offset, std::shared_ptr<void> memory, size_t n, bool write) {
    check<UsageError>(reinterpret_cast<uintptr_t>(memory.get()) % kAlignment == 0 && memory,
                      "offload: memory at {} is not aligned to {} bytes", memory.get(), kAlignment);
    auto request = std::make_shared<OffloadRequest>();
    request->write = write;
    request->region = region(offset, n, write);
    request->memory = std::static_pointer_cast<char>(std::move(memory));
    request->sink = trace_sink();
    queue->post(request);
    Request handle;
    handle.impl_ =
        std::make_shared<Request::Impl>(Request::Impl{queue, options.timeout, std::move(request)});
    return handle;
  }

  OffloadFileOptions options;
  uint64_t bytes;
  bool direct = false;
  std::string why_not;
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<OffloadRegion>> regions;  // by offset
  std::shared_ptr<OffloadQueue> queue;
};

OffloadFile::OffloadFile(const OffloadFileOptions& options, uint64_t bytes)
    : impl_(std::make_unique<Impl>(options, bytes)) {}
OffloadFile::~OffloadFile() = default;

void OffloadFile::Request::wait() const {
  if (impl_) impl_->queue->wait(*impl_->request, impl_->timeout);
}

OffloadFile::Request OffloadFile::write(uint64_t offset, std::shared_ptr<void> from, size_t bytes) {
  return impl_->post(offset, std::move(from), bytes, true);
}
OffloadFile::Request OffloadFile::read(uint64_t offset, std::shared_ptr<void> into, size_t bytes) {
  return impl_->post(offset, std::move(into), bytes, false);
}

bool OffloadFile::holds(uint64_t offset, const void* memory, size_t bytes) const {
  const auto region = impl_->region(offset, bytes, false);
  if (!region->whole) return false;
  for (size_t b = 0; b < region->sums.size(); ++b)
    if (impl_->queue->sum(*region, b, static_cast<const char*>(memory)) != region->sums[b])
      return false;
  return true;
}

std::shared_ptr<const void> OffloadFile::map(uint64_t offset, size_t bytes) const {
  (void)impl_->region(offset, bytes, false);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t before = offset % page;  // pages may be larger than our alignment
  const size_t length = bytes + before;
  void* at = file_calls::map(impl_->queue->fd(), length, static_cast<off_t>(offset - before));
  check<ResourceError>(at != MAP_FAILED, "offload: cannot map {} bytes of the file in {}: {}",
                       bytes, impl_->options.folder, errno_text());
  return {static_cast<const char*>(at) + before,
          [at, length](const void*) { ::munmap(at, length); }};
}

const char* OffloadFile::engine() const { return impl_->queue->io().name(); }
const std::string& OffloadFile::why_not_io_uring() const { return impl_->why_not; }
bool OffloadFile::direct() const { return impl_->direct; }
void OffloadFile::grow(uint64_t bytes) {
  std::lock_guard lock(impl_->mutex);
  check<UsageError>(bytes >= impl_->bytes, "offload: a file of {} bytes is to grow to {}",
                    impl_->bytes, bytes);
  reserve(impl_->queue->fd(), impl_->options.folder, impl_->bytes, bytes);
  impl_->bytes = bytes;
}

uint64_t OffloadFile::bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->bytes;
}
const std::string& OffloadFile::folder() const { return impl_->options.folder; }

std::shared_ptr<void> offload_memory(size_t bytes) {
  if (bytes == 0) bytes = 1;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check<ResourceError>(at != MAP_FAILED, "offload: no memory for a buffer of {} bytes: {}", bytes,
                       errno_text());
  return {at, [bytes](void* p) { ::munmap(p, bytes); }};
}

}  // namespace trireme
