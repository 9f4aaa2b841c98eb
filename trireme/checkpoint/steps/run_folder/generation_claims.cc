// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <random>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"

namespace trireme {
namespace {

constexpr int64_t kKept = 16;  // for those that have not heard of it for long

/// -1: none.
int64_t number_in(std::string_view digits) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() && number >= 0 ? number : -1;
}

std::string bare_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string GenerationClaims::claim(int64_t number, const std::string& text) const {
  make_folders(parent_folder(path_));
  std::random_device random;
  const std::string draft = fmt::format("{}.tmp.{}.{:08x}", path_, ::getpid(), random());
  write_file_atomic(draft, text);
  const int made = file_calls::link(draft, file(number));
  const int error = made == 0 ? 0 : errno;
  file_calls::unlink(draft);
  check<ResourceError>(made == 0 || error == EEXIST, "cannot claim generation {} in {}: {}",
                       number + 1, file(number), errno_text(error));
  fsync_path(parent_folder(path_));
  const std::string claimed = read_file(file(number), kLongest);
  if (made == 0)
    for (const std::string& name : list_folder(parent_folder(path_)))
      if (const std::string prefix = bare_name(path_) + "."; name.starts_with(prefix))
        if (const int64_t old = number_in(std::string_view(name).substr(prefix.size()));
            old >= 0 && old < number - kKept)
          file_calls::unlink(file(old));
  return claimed;
}

int64_t GenerationClaims::newest() const {
  int64_t newest = -1;
  const std::string prefix = bare_name(path_) + ".";
  for (const std::string& name : list_folder(parent_folder(path_)))
    if (name.starts_with(prefix))
      newest = std::max(newest, number_in(std::string_view(name).substr(prefix.size())));
  return newest;
}

GenerationFence GenerationFence::of_environment() {
  const char* path = std::getenv(kPathVariable);
  const char* number = std::getenv(kNumberVariable);
  if (!path || !*path) return {};
  GenerationFence fence{path, number_in(number ? number : "")};
  trireme::check<UsageError>(
      fence.number >= 0,
      "{} names a file and {}={} is not the number of a generation: both are "
      "a launcher's to set",
      kPathVariable, kNumberVariable, number ? number : "");
  return fence;
}

void GenerationFence::check() const {
  if (path.empty()) return;
  const GenerationClaims claims(path);
  // A file server may show a new name later in a list than to who asks for it.
  const bool over = path_kind(path + "." + std::to_string(number)) != PathKind::nothing;
  const int64_t newest = over ? number : claims.newest();
  trireme::check<ResourceError>(newest < number,
                                "other hosts of the job go on without this one ({}.{} says so): "
                                "what it has computed since is "
                                "not published",
                                path, newest);
}

}  // namespace trireme
