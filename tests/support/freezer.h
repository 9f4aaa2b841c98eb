// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/process/cgroup.h"

namespace trireme::testing {

/// A cgroup whose processes all stand still together, as a host does that is suspended: no signal
/// reaches them and none says so. Of whichever version is there; gone with the object.
class Freezer {
 public:
  Freezer() {
    make("", "cgroup.freeze", "1", "0");
    if (path_.empty()) make("freezer", "freezer.state", "FROZEN", "THAWED");
  }
  ~Freezer() {
    if (path_.empty()) return;
    thaw();
    for (int i = 0; ::rmdir(path_.c_str()) != 0 && i < 5000; ++i) ::usleep(1000);
  }
  Freezer(const Freezer&) = delete;
  const std::string& why() const { return why_; }  // "": it is there
  /// Who writes its pid there is in it, with all that it starts.
  std::string procs() const { return path_ + "/cgroup.procs"; }
  bool freeze() const { return write(file_, freeze_); }
  bool thaw() const { return write(file_, thaw_); }

 private:
  static bool write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    return static_cast<bool>(file << text << std::flush);
  }
  void make(const std::string& controller, const std::string& file, const std::string& freeze,
            const std::string& thaw) {
    walk_cgroups("", controller, [&](const std::string& folder) {
      const std::string path = folder + "/trireme-freezer-" + std::to_string(::getpid());
      if (::mkdir(path.c_str(), 0755) != 0) {
        why_ = "cannot make a cgroup below " + folder + ": " + errno_text();
        return true;
      }
      if (::access((path + "/" + file).c_str(), W_OK) == 0) {
        path_ = path, file_ = path + "/" + file, freeze_ = freeze, thaw_ = thaw;
        why_.clear();
        return false;
      }
      ::rmdir(path.c_str());
      return true;
    });
  }

  std::string path_, file_, freeze_, thaw_, why_ = "no cgroup with a freezer";
};

}  // namespace trireme::testing
