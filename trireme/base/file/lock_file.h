// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// A lock for file systems that have none (NFS): a file whose text names its holder. It is made by
/// link(2), which is atomic on NFS as well, so that one process makes it and its name appears with
/// all of its text. The holder renews the file's time of change, by the server's clock: who cannot
/// ask whether its process lives can watch for that.
class TRIREME_API LockFile {
 public:
  /// Whom a text names, for messages.
  using Describe = std::string (*)(const std::string& text);

  /// Renews the file every `beat`. Null where there is one already. ResourceError, also where the
  /// file system has no links. No other holder's text is the same.
  static std::unique_ptr<LockFile> try_make(const std::string& path, std::string text,
                                            Duration beat, Describe describe);
  /// Goes on with the file that this process made before it executed another program.
  static std::unique_ptr<LockFile> adopt(const std::string& path, std::string text, Duration beat,
                                         Describe describe);
  /// Removes the file, if it is still ours.
  ~LockFile();
  LockFile(const LockFile&) = delete;
  /// ResourceError where another process took this one for dead and has the file now.
  void check_ours() const;

  /// What the file says, and when it was changed.
  struct Seen {
    std::string text;
    int64_t changed_ns = 0;
    bool operator==(const Seen&) const = default;
  };
  static constexpr size_t kLongest = 4096;  // of a text, and no more is read
  /// Nothing: there is no such file.
  static std::optional<Seen> look(const std::string& path);
  /// Waits until the file is renewed, or another one, or gone; false: it stayed as it was `seen`
  /// for as long as `silence`.
  static bool changes(const std::string& path, const Seen& seen, Duration silence);
  /// Removes the file if it still says `dead`. One process at a time does so: while another does
  /// (for up to `silence`, then it is dead as well) this call waits and removes nothing.
  static void take_away(const std::string& path, const std::string& dead, Duration silence);

 private:
  class Renewal;
  LockFile(std::string path, std::string text, Describe describe);
  std::string loss(const std::optional<Seen>& now) const;

  const std::string path_, text_;
  const Describe describe_;
  const int64_t process_;  // a forked child is not the holder
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace trireme
