// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/step_links.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme {
namespace {

constexpr std::string_view kEpoch = "epoch_";

}  // namespace

std::string epoch_link(int64_t epoch) { return fmt::format("{}{}", kEpoch, epoch); }

bool link_keeps_step(const std::string& name) {
  return name == kInterruptLink || name.starts_with(kEpoch);
}

void link_step(const std::string& run_dir, const std::string& name, int64_t step) {
  const std::string path = run_dir + "/" + name;
  struct ::stat there {};
  check<ResourceError>(file_calls::lstat(path, &there) != 0 || S_ISLNK(there.st_mode),
                       "cannot name a step {}: something else than a link has the name", path);
  // Temporaries that begin so are cleared away with those of dead savers.
  const std::string temporary = fmt::format("{}/.tmp-link-{}-{}", run_dir, name, ::getpid());
  file_calls::unlink(temporary);
  if (file_calls::symlink(step_folder_name(step), temporary) != 0)
    fail<ResourceError>("cannot make the link {}: {}", path, errno_text());
  if (file_calls::rename(temporary, path) != 0) {
    const std::string why = errno_text();
    file_calls::unlink(temporary);
    fail<ResourceError>("cannot move the link {}: {}", path, why);
  }
}

std::map<std::string, int64_t> step_links(const std::string& run_dir) {
  std::map<std::string, int64_t> links;
  for (const std::string& name : list_folder(run_dir)) {
    if (name.starts_with('.')) continue;
    std::error_code error;
    const auto target = std::filesystem::read_symlink(run_dir + "/" + name, error);
    if (const int64_t step = error ? -1 : step_of_name(target.native()); step >= 0)
      links[name] = step;
  }
  return links;
}

}  // namespace trireme
