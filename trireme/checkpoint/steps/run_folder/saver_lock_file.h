// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/base/process/process_id.h"

namespace trireme {

/// The half of SaverLock for file systems without locks: a file that names its holder, made by
/// link(2), which is atomic on NFS as well.
class TRIREME_API SaverLockFile {
 public:
  /// Null while another saver has it, which `holder` (may be null) then names.
  static std::unique_ptr<SaverLockFile> try_take(const std::string& path, Duration beat,
                                                 Duration silence, std::string* holder);
  /// Whether nobody has it, or only who is dead, whose file is removed.
  static bool is_free(const std::string& path, Duration silence, std::string* holder);
  /// Removes the file, if it is still ours.
  ~SaverLockFile();
  SaverLockFile(const SaverLockFile&) = delete;
  void check_ours() const;

 private:
  SaverLockFile(std::string path, std::string text, Duration beat);
  void renew();

  const std::string path_, text_;
  const Duration beat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

/// What such a file says; a text that is no holder's name is nobody's.
TRIREME_API std::string saver_lock_text(const ProcessId& holder, const std::string& token);
TRIREME_API std::optional<ProcessId> read_saver_lock(const std::string& text);

}  // namespace trireme
