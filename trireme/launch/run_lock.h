// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/lock_file.h"
#include "trireme/base/process/process_id.h"

// A folder that one job owns. Two jobs in one folder overwrite each other's configuration, metrics
// and checkpoints without either noticing.
//
// The owner's name is a line of JSON in FOLDER/run.lock, which is removed when it leaves; beside
// that it holds the kernel's lock (flock) on the file, and so do the workers that it starts. The
// name says who it is and whether it lives; the kernel's lock says whether anything of a killed job
// still runs.
//
// Where the file system has no such lock (NFS), the name is the lock: it appears by link(2), which
// one launcher succeeds in. An owner of this host that is dead is taken over at once. One on
// another host or in another container renews the file's time of change for as long as it lives,
// and is dead after a minute of silence; who wants the folder waits for the one or the other. Hosts
// that share a folder must all mount it alike.
namespace trireme::launch {

inline constexpr const char* kRunLockName = "run.lock";
inline constexpr int kRunLockVersion = 1;
/// Beside it, where nodes come and go: FOLDER/run.generation.<n> says what follows generation n.
inline constexpr const char* kRunGenerationName = "run.generation";

/// What is found, and what to do about it. Pure.
struct LockQuestion {
  bool named = false;                // the file names an owner
  Presence owner = Presence::dead;   // where it does
  std::optional<bool> held = false;  // the kernel's lock is; nothing: it has none here (some NFS)
  bool take_over = false;            // the user says: the owner on another host is gone
  // An owner that nobody here can see has renewed its file; nothing: it was not watched.
  std::optional<bool> renewed = std::nullopt;
};
enum class LockAnswer {
  take,
  wait,             // what is left of a killed job is about to end
  refuse_running,   // it runs
  refuse_elsewhere  // it is on another host and may run: --take-over
};
TRIREME_API LockAnswer answer_of(const LockQuestion& question);

struct LockOwner {
  ProcessId process;
  std::string since;    // "2026-11-22T16:50:07Z"
  bool renews = false;  // its file, whose silence means that it is dead
};
/// This process, now.
TRIREME_API LockOwner this_owner();
TRIREME_API std::string lock_text(const LockOwner& owner);
/// Nothing: an empty text (whoever began to write it died). Corrupt: not one of ours. UsageError:
/// of a newer version, naming both. `path` is for the texts.
TRIREME_API std::optional<LockOwner> read_lock(std::string_view text, const std::string& path);

struct RunLockOptions {
  bool take_over = false;
  Duration patience = std::chrono::seconds(15);  // for workers of a killed job to end
  /// An owner that runs is of this job, on a node that it goes on without: it is waited for as
  /// well, and who cannot be seen and stays for longer may publish nothing any more.
  bool after_predecessor = false;
  // Without locks of the kernel:
  Duration beat = std::chrono::seconds(10);     // the owner renews the file so often
  Duration silence = std::chrono::seconds(60);  // … and is dead after that
};

class TRIREME_API RunLock {
 public:
  /// Takes the folder, which exists. ResourceError: somebody has it (host, pid and since when are
  /// named, and what to do), or the file cannot be written.
  explicit RunLock(const std::string& folder, const RunLockOptions& options = {});
  /// Goes on with the lock that this process took before it executed another program.
  static RunLock adopt(const std::string& folder, int fd, const RunLockOptions& options = {});
  /// Removes the file, unless somebody else has taken the folder over.
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;

  /// From here on programs that this process starts, and what it becomes, hold the kernel's lock,
  /// too.
  void pass_on() const;
  int fd() const { return fd_.get(); }
  const std::string& folder() const { return folder_; }

 private:
  RunLock() = default;
  bool try_once(const RunLockOptions& options, Deadline deadline);
  bool may_take(const LockQuestion& question, const std::optional<LockOwner>& owner,
                const RunLockOptions& options, Deadline deadline) const;
  bool take_by_name(const std::string& found, const RunLockOptions& options);

  std::string folder_, path_, text_;
  UniqueFd fd_;
  std::unique_ptr<LockFile> file_;  // where the kernel has no locks
};

}  // namespace trireme::launch
