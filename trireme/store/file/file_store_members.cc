// SPDX-License-Identifier: Apache-2.0
// Coming to a FileStore's file and leaving it.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/address.h"
#include "trireme/net/connect.h"
#include "trireme/net/secret.h"
#include "trireme/net/socket.h"
#include "trireme/store/file/file_lock.h"
#include "trireme/store/file/file_store.h"

namespace trireme {

using detail::FileLock;
using detail::FileRecord;
using detail::FileVerdict;
using detail::LockMode;

namespace {

constexpr uid_t kNobody = 65534;  // what a file server may make of root

UniqueFd open_store_file(const std::string& path, int more_flags) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), flags | more_flags, 0600));
  int code = errno;
  auto hint = net::descriptor_hint(code);
  check<ResourceError>(static_cast<bool>(fd), "cannot open the store's file {}: {}{}", path,
                       errno_text(code),
                       hint.empty() ? "; name a file in a folder that every rank may write" : hint);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0)
    fail<ResourceError>("cannot stat the store's file {}: {}", path, errno_text());
  check<UsageError>(S_ISREG(st.st_mode), "{} is not a regular file: a store needs one", path);
  bool ours = st.st_uid == ::geteuid() || (::geteuid() == 0 && st.st_uid == kNobody);
  check<UsageError>(ours && (st.st_mode & 022) == 0,
                    "others than user {} may write {} (owner {}, mode {:04o}), and so into this "
                    "job: name a file that does not exist yet",
                    ::geteuid(), path, st.st_uid, st.st_mode & 07777);
  return fd;
}

bool is_remote(int fd) {
  struct statfs fs {};
  return ::fstatfs(fd, &fs) == 0 && fs.f_type == NFS_SUPER_MAGIC;
}

}  // namespace

void FileStore::open(int more_flags) {
  fd_ = open_store_file(path_, more_flags);
  is_remote_ = is_remote(fd_.get());
}

bool FileStore::names_this_file() const {
  struct stat there {
  }, here{};
  return ::stat(path_.c_str(), &there) == 0 && ::fstat(fd_.get(), &here) == 0 &&
         here.st_nlink > 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/// An empty file is as good as none, where the folder lets nobody remove it.
bool FileStore::remove_file() {
  return ::unlink(path_.c_str()) == 0 || ::ftruncate(fd_.get(), 0) == 0;
}

/// Under the exclusive lock, after catch_up(). `before`: what a new file begins with.
void FileStore::enter(uint32_t rank, std::string before) {
  auto number = static_cast<uint32_t>(state_.clients().size());
  // Nobody holds it, or a descriptor of a process that died is still open in a child of it.
  FileLock lock(fd_.get(), detail::kClientLock + number, LockMode::exclusive,
                Deadline::after(answer_limit_), path_);
  FileRecord record{FileRecord::Type::enter,          "", net::host_name(), number, rank,
                    static_cast<uint64_t>(::getpid())};
  append_bytes(before + detail::encode(record));
  state_.apply(record);
  lock.keep();
  number_ = number;
}

/// One attempt: entered, refused, or to come again for.
detail::FileSeat FileStore::try_enter(const Member& member, Deadline deadline) {
  open(O_CREAT);
  FileLock lock(fd_.get(), detail::kLogLock, LockMode::exclusive, deadline, path_);
  if (!names_this_file())
    return {FileVerdict::come_again, "the last of an earlier group removed it just now"};
  catch_up();
  if (!state_.begun()) {
    trireme::check<Corrupt>(
        end_ == 0, "{} was cut short by its writer's death: delete it and start all ranks again",
        path_);
    FileRecord begin{FileRecord::Type::begin, member.job_id,     net::random_token(),
                     member.attempt,          member.world_size, 0};
    state_.apply(begin);
    enter(member.rank, detail::file_start() + detail::encode(begin));
    return {};
  }
  auto seat = detail::find_seat(
      state_, member, [&](uint32_t client) { return lives(client); }, path_);
  if (seat.verdict == FileVerdict::enter) enter(member.rank, "");
  if (seat.verdict == FileVerdict::take_over) {
    if (!remove_file())
      fail<ResourceError>("cannot remove {}, which is no longer in use: {}", path_, errno_text());
    return {FileVerdict::come_again, "what an earlier group left behind was removed just now"};
  }
  return seat;
}

std::unique_ptr<FileStore> FileStore::join(const std::string& path, const Member& member,
                                           Deadline deadline) {
  auto start = Clock::now();
  net::BackOff back_off;
  while (true) {
    std::unique_ptr<FileStore> out(new FileStore(path));
    detail::FileSeat seat{FileVerdict::come_again, ""};
    try {
      seat = out->try_enter(member, deadline);
    } catch (const PeerLost& error) {  // deleted between two looks at it
      seat.why = error.what();
    }
    if (seat.verdict == FileVerdict::enter) return out;
    trireme::check<UsageError>(seat.verdict == FileVerdict::come_again, "the store's file {}",
                               seat.why);
    out.reset();
    trireme::check<Timeout>(back_off.pause(deadline),
                            "the store's file {} was not free within {:.1f} s: {}", path,
                            seconds_since(start), seat.why);
  }
}

std::unique_ptr<Store> FileStore::clone(Deadline deadline) {
  use_.made_in.check("this store");
  std::unique_ptr<FileStore> out(new FileStore(path_));
  out->answer_limit_ = answer_limit_;
  trireme::check<PeerLost>(names_this_file(),
                           "the store's file {} was deleted while this job uses it", path_);
  out->open(0);
  FileLock lock(out->fd_.get(), detail::kLogLock, LockMode::exclusive, deadline, path_);
  out->catch_up();
  trireme::check<PeerLost>(out->state_.token() == state_.token(),
                           "the store's file {} was deleted while this job uses it", path_);
  out->enter(detail::kNoRank, "");
  return out;
}

void FileStore::leave() {
  FileLock lock(fd_.get(), detail::kLogLock, LockMode::exclusive,
                Deadline::after(std::min<Duration>(answer_limit_, std::chrono::seconds(2))), path_);
  if (!names_this_file()) return;
  catch_up();
  for (const auto& [number, client] : state_.clients())
    if (client.end == detail::FileState::Client::End::none && number != number_ && lives(number))
      return append({FileRecord::Type::leave, "", "", number_, 0, 0});
  if (!remove_file())
    log_warn("cannot remove the store's file {}: {}; delete it before the next job", path_,
             errno_text());
}

FileStore::~FileStore() {
  if (number_ == detail::kNoRank || !use_.is_of_this_process()) return;
  try {
    leave();
  } catch (const std::exception& error) {  // to the others it looks as if this process had died
    log_warn("did not leave the store's file in order: {}", error.what());
  }
}

}  // namespace trireme
