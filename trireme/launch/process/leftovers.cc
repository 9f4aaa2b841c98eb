// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/launch/process/keeper.h"
#include "trireme/launch/run_lock.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;

bool is_own_folder(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() &&
         (st.st_mode & 077) == 0;
}

bool owner_is_dead(const std::string& folder) {
  try {
    const std::string path = folder + "/owner";
    const auto owner = read_lock(read_file(path, 4096), path);
    return owner && presence_of(owner->process) == Presence::dead;
  } catch (const Error&) {
    return false;
  }
}

void sweep(const std::string& base) {
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator it(base, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().rfind("trireme", 0) == 0)
      if (const std::string path = it->path().string(); is_own_folder(path) && owner_is_dead(path))
        left.push_back(path);
  for (const auto& folder : left) {
    const int ended = kill_everything({}, job_cookie(folder));
    fs::remove_all(folder, error);
    log_info("removed what a killed launcher had left: {}{}", folder,
             ended > 0 ? ", and what its workers had started" : "");
  }
}

}  // namespace

void mark_owner(const std::string& folder) {
  write_file_atomic(folder + "/owner", lock_text(this_owner()));
}

void sweep_leftovers(const std::string& base) noexcept {
  try {
    sweep(base);
  } catch (const std::exception& error) {
    log_debug("leftovers in {}: {}", base, error.what());
  }
}

}  // namespace trireme::launch
