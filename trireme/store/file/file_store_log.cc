// SPDX-License-Identifier: Apache-2.0
// A FileStore's file: reading what others appended, appending, and the wills of those who died.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/log.h"
#include "trireme/store/file/file_lock.h"
#include "trireme/store/file/file_store.h"

namespace trireme {

using detail::FileLock;
using detail::FileRecord;
using detail::LockMode;

namespace {

// Any whole record fits into one read.
constexpr size_t kReadBytes = detail::kMaxRecordBytes + 4096;
constexpr auto kWillsEvery = std::chrono::milliseconds(100);
constexpr auto kWillsEveryFor = std::chrono::milliseconds(1);  // for each client with one

/// ESTALE is what a file server says of a file that another host deleted.
void check_io(bool ok, const char* what, const std::string& path) {
  if (ok) return;
  int code = errno;
  check<PeerLost>(code != ESTALE, "the store's file {} was deleted while this job uses it", path);
  fail<ResourceError>("cannot {} the store's file {}: {}", what, path, errno_text(code));
}

std::string read_at(int fd, uint64_t offset, size_t bytes, const std::string& path) {
  std::string out(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    ssize_t n = ::pread(fd, out.data() + got, bytes - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    check_io(n >= 0, "read", path);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  out.resize(got);
  return out;
}

}  // namespace

/// Under the log's lock. What ends in the middle of a record was cut short by its writer's death.
void FileStore::catch_up() {
  struct stat st {};
  check_io(::fstat(fd_.get(), &st) == 0, "stat", path_);
  trireme::check<PeerLost>(st.st_nlink > 0,
                           "the store's file {} was deleted while this job uses it", path_);
  auto size = static_cast<uint64_t>(st.st_size);
  trireme::check<Corrupt>(size >= end_,
                          "the store's file {} has {} bytes and had {}: something else wrote to it",
                          path_, size, end_);
  try {
    if (end_ == 0 && size > 0) {
      auto start = read_at(fd_.get(), 0, detail::kFileStartBytes, path_);
      trireme::check<Corrupt>(detail::check_file_start(start, path_), "it ends after {} bytes",
                              start.size());
      end_ = detail::kFileStartBytes;
    }
    while (end_ < size) {
      auto bytes = read_at(fd_.get(), end_, std::min<uint64_t>(size - end_, kReadBytes), path_);
      std::string_view rest = bytes;
      size_t taken = 0;
      while (auto record = detail::decode_record(rest, &taken)) {
        state_.apply(*record);
        rest.remove_prefix(taken);
        end_ += taken;
      }
      if (rest.size() == bytes.size()) break;
    }
    is_torn_ = end_ < size;
  } catch (const Corrupt& error) {
    if (end_ == 0) throw;  // names the file already
    fail<Corrupt>(
        "the store's file {} is damaged at byte {}: {}. Delete it and start all ranks "
        "again",
        path_, end_, error.what());
  }
}

void FileStore::write_all(std::string_view bytes) {
  uint64_t at = end_;
  while (!bytes.empty()) {
    int pretend = failpoint("store.append");
    ssize_t n =
        pretend ? -1 : ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (pretend) errno = pretend;
    if (n < 0 && errno == EINTR) continue;
    check_io(n > 0, "write", path_);
    bytes.remove_prefix(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  // Elsewhere a full disk shows at once, and losing the host loses the job anyway.
  check_io(!is_remote_ || ::fdatasync(fd_.get()) == 0, "write", path_);
}

/// Under the exclusive lock, after catch_up(). All of it is there, or nothing.
void FileStore::append_bytes(std::string_view bytes) {
  trireme::check<ResourceError>(
      end_ + bytes.size() <= kMaxFileBytes,
      "the store's file {} has {} bytes and may have {}: it keeps every change; a job with so many "
      "wants tcp://host:port",
      path_, end_, kMaxFileBytes);
  // A shorter record must not end in the rest of one that was cut short.
  bool cut = !is_torn_ || ::ftruncate(fd_.get(), static_cast<off_t>(end_)) == 0;
  check_io(cut, "write", path_);
  try {
    write_all(bytes);
  } catch (...) {
    [[maybe_unused]] int undone = ::ftruncate(fd_.get(), static_cast<off_t>(end_));
    throw;
  }
  end_ += bytes.size();
}

void FileStore::append(const FileRecord& record) {
  append_bytes(detail::encode(record));
  state_.apply(record);
}

bool FileStore::lives(uint32_t client) const {
  return client == number_ || detail::is_locked(fd_.get(), detail::kClientLock + client, path_);
}

/// Looks after those who left a will, now and then: whoever finds one dead says so for all.
void FileStore::carry_out_wills() {
  if (!next_wills_.expired()) return;
  std::vector<uint32_t> dead;
  int with_will = 0;
  auto is_dead = [&](uint32_t number, const detail::FileState::Client& client) {
    return client.end == detail::FileState::Client::End::none && !client.will_key.empty() &&
           !lives(number);
  };
  for (const auto& [number, client] : state_.clients()) {
    with_will += !client.will_key.empty();
    if (is_dead(number, client)) dead.push_back(number);
  }
  next_wills_ = Deadline::after(kWillsEvery + with_will * kWillsEveryFor);
  if (dead.empty()) return;
  FileLock lock(fd_.get(), detail::kLogLock, LockMode::exclusive, Deadline::after(answer_limit_),
                path_);
  catch_up();  // somebody else may have said it, or it had left in order
  for (auto number : dead) {
    const auto& client = state_.clients().at(number);
    if (!is_dead(number, client)) continue;
    log_debug("process {} on {} is lost: setting '{}' as it wished", client.process, client.host,
              client.will_key);
    append({FileRecord::Type::lost, "", "", number, 0, 0});
  }
}

}  // namespace trireme
