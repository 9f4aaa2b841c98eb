// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// Keeps the savers of one run folder apart, from taking it to the end of the object.
///
/// It is the kernel's lock (flock) on the folder, which ends however its holder ends. Where the
/// file system has none (NFS, which cannot lock a folder), it is a file, run_dir/saving.lock, that
/// names its holder. One whose process is dead is taken over at once. Whether a holder on another
/// host or in another container lives is told by the file's time of change, which a holder renews:
/// one that is silent for long is dead. Hosts that share a folder must all mount it alike. One
/// thread at a time.
class TRIREME_API SaverLock {
 public:
  static constexpr const char* kFileName = "saving.lock";
  /// Names a holder that is another saver of the process that asks.
  static constexpr const char* kThisProcess = "another saver of this process";
  struct Times {
    Duration beat = std::chrono::seconds(10);     // a holder renews the file so often
    Duration silence = std::chrono::seconds(60);  // … and is dead after that
  };

  /// Nothing while another saver has it, which `holder` then names where it can be known ("process
  /// 17 on node3", or kThisProcess). May wait for a beat to learn that a holder elsewhere lives.
  /// ResourceError when the folder or the file cannot be used.
  static std::optional<SaverLock> try_take(const std::string& run_dir, std::string* holder,
                                           const Times& times);
  static std::optional<SaverLock> try_take(const std::string& run_dir,
                                           std::string* holder = nullptr) {
    return try_take(run_dir, holder, Times());
  }
  SaverLock(SaverLock&&) noexcept;
  SaverLock& operator=(SaverLock&&) noexcept;
  ~SaverLock();

  /// ResourceError where another saver took this one for dead and has the folder now (this process
  /// was stopped, or cut off from the file server).
  void check_ours() const;

 private:
  class Holding;
  explicit SaverLock(std::unique_ptr<Holding> holding);
  std::unique_ptr<Holding> holding_;
};

}  // namespace trireme
