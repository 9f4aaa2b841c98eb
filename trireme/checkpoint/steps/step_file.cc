// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/step_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/large_pages.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {

namespace {

// A disk that fails once may answer the second time.
std::string read_twice(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 28;
  try {
    return read_file(path, kMost);
  } catch (const ResourceError&) {
    return read_file(path, kMost);
  }
}

std::string good_at_sight(const std::string& folder, const std::string& name,
                          const IndexFile& expected) {
  std::string path = folder + "/" + name;
  const std::string fault = fault_at_sight(folder, name, expected);
  check<Corrupt>(fault.empty(), "{} {}", path, fault);
  return path;
}

}  // namespace

CheckpointIndex read_step_index(const std::string& folder) {
  const std::string path = folder + "/" + CheckpointIndex::kFileName;
  check<Corrupt>(path_kind(path) == PathKind::file, "{} is missing", path);
  CheckpointIndex index = parse_index(read_twice(path), path);
  const int64_t named = step_of_folder(folder);
  check<Corrupt>(named < 0 || named == index.step, "{} holds step {}: was the folder renamed?",
                 folder, index.step);
  return index;
}

std::string fault_at_sight(const std::string& folder, const std::string& name,
                           const IndexFile& expected) {
  uint64_t size = 0;
  const PathKind kind = path_kind(folder + "/" + name, &size);
  if (kind == PathKind::nothing &&
      path_kind(folder + "/" + CheckpointIndex::kFileName) == PathKind::nothing)
    return "was deleted while it was read";  // as a run does it that keeps its newest steps
  if (kind != PathKind::file)
    return fmt::format("is missing; the index says it has {} bytes", expected.size);
  return size == expected.size
             ? ""
             : fmt::format("has {} bytes; the index says {}", size, expected.size);
}

StepFile::StepFile(const std::string& folder, const std::string& name, const IndexFile& expected,
                   std::shared_ptr<OpenFiles> files)
    : PartSource(good_at_sight(folder, name, expected)),
      file_(path(), expected.size, files),
      files_(std::move(files)),
      size_(expected.size) {
  std::vector<uint8_t> small(std::min<uint64_t>(expected.size, 8));
  read(0, small);
  const auto size =
      static_cast<size_t>(interop::safetensors_head_size(small, expected.size, path()));
  constexpr size_t kSmall = size_t{1} << 20, kLarge = size_t{2} << 20;
  LargePages large;
  std::span<uint8_t> head;
  if (size <= kSmall) {
    small.resize(size);
    head = small;
  } else {
    large = LargePages((size + kLarge - 1) / kLarge * kLarge);
    head = {reinterpret_cast<uint8_t*>(large.data()), size};
  }
  read(0, head);
  take_head(head, expected);
}

void StepFile::will_read(uint64_t at, uint64_t bytes) const {
  ::posix_fadvise(file_.descriptor()->get(), static_cast<off_t>(at), static_cast<off_t>(bytes),
                  POSIX_FADV_WILLNEED);
}

// Asks of memory that is never looked at: what is not there stays where it is. To those who neither
// own the file nor may write it the kernel says that all of it is there, and it is read through the
// page cache.
bool StepFile::is_cached(uint64_t at, uint64_t size) const {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = at / page * page, bytes = at + size - begin;
  void* const mapped = file_calls::map(file_.descriptor()->get(), static_cast<size_t>(bytes),
                                       static_cast<off_t>(begin));
  if (mapped == MAP_FAILED) return false;
  std::vector<unsigned char> pages(static_cast<size_t>((bytes + page - 1) / page));
  const bool told = ::mincore(mapped, static_cast<size_t>(bytes), pages.data()) == 0;
  ::munmap(mapped, static_cast<size_t>(bytes));
  return told && std::all_of(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
}

// Null where there is none. The file may have got another name since it was opened, or another file
// has its name now: then the descriptor that was open first goes on.
std::shared_ptr<const UniqueFd> StepFile::direct_descriptor() const {
  std::call_once(opened_direct_, [&] {
    try {
      direct_.emplace(path(), size_, files_, O_DIRECT);
      if (!direct_->is_same_file_as(file_)) direct_.reset();
    } catch (const Error&) {  // or not on this file system
    }
  });
  try {
    if (direct_) return direct_->descriptor();
  } catch (const Error&) {
  }
  return nullptr;
}

void StepFile::read_pages(uint64_t at, std::span<uint8_t> to, uint64_t size) const {
  uint64_t done = 0;
  if (const auto fd = is_cached(at, size) ? nullptr : direct_descriptor()) {
    while (done < size) {
      const ssize_t n = file_calls::pread(fd->get(), to.data() + done, to.size() - done,
                                          static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // what is left, and why, is read()'s
      done += static_cast<uint64_t>(n);
    }
  }
  if (done < size) read(at + done, to.subspan(done, size - done));
}

void StepFile::read_again(uint64_t at, std::span<uint8_t> to) const {
  constexpr size_t kPiece = size_t{64} << 10;
  const auto fd = file_.descriptor();
  while (!to.empty()) {
    const ssize_t n =
        file_calls::pread_cached(fd->get(), to.data(), to.size(), static_cast<off_t>(at));
    if (n == 0 || (n < 0 && errno != EAGAIN)) break;  // not here, or not on this file system
    auto moved = static_cast<size_t>(std::max<ssize_t>(n, 0));
    if (n < 0) {  // these pages have gone, or the kernel would read on behind them
      moved = std::min(kPiece, to.size());
      read(at, to.first(moved));
    }
    at += moved;
    to = to.subspan(moved);
  }
  read(at, to);
}

void StepFile::read(uint64_t at, std::span<uint8_t> to) const {
  const auto fd = file_.descriptor();
  bool failed = false;
  while (!to.empty()) {
    const ssize_t n = file_calls::pread(fd->get(), to.data(), to.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EIO && !std::exchange(failed, true)) continue;
    check<ResourceError>(n >= 0, "cannot read {}: {}", path(), errno_text());
    check<ResourceError>(n > 0, "cannot read {}: it ended at byte {} while it was read", path(),
                         at);
    at += static_cast<uint64_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
}

}  // namespace trireme
