// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"

namespace trireme {
namespace {

bool is_absent(int error) { return error == ENOENT || error == ENOTDIR; }

struct OpenFolder {
  explicit OpenFolder(DIR* opened) : folder(opened) {}
  ~OpenFolder() {
    if (folder) ::closedir(folder);
  }
  OpenFolder(const OpenFolder&) = delete;
  DIR* folder;
};

/// Who may enter a folder and write to it, and not read it, cannot sync it: a /scratch of mode
/// 1733.
void sync_if_readable(const std::string& folder) {
  const UniqueFd fd(file_calls::open(folder, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    const int error = errno;
    check<ResourceError>(error == EACCES, "cannot open {}: {}", folder, errno_text(error));
    return;
  }
  if (file_calls::fsync(fd.get()) != 0)
    fail<ResourceError>("cannot sync {}: {}", folder, errno_text());
}

}  // namespace

PathKind path_kind(const std::string& path, uint64_t* size) {
  struct stat found {};
  if (file_calls::stat(path, &found) != 0) {
    const int error = errno;
    check<ResourceError>(is_absent(error), "cannot look at {}: {}", path, errno_text(error));
    return PathKind::nothing;
  }
  if (size) *size = static_cast<uint64_t>(found.st_size);
  if (S_ISREG(found.st_mode)) return PathKind::file;
  return S_ISDIR(found.st_mode) ? PathKind::folder : PathKind::other;
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  const OpenFolder opened(file_calls::opendir(path));
  if (!opened.folder) {
    const int error = errno;
    check<ResourceError>(is_absent(error), "cannot list {}: {}", path, errno_text(error));
    return names;
  }
  while (const dirent* item = file_calls::readdir(opened.folder, path)) {
    std::string name = item->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  const int error = errno;
  check<ResourceError>(error == 0, "cannot list {}: {}", path, errno_text(error));
  return names;
}

std::string parent_folder(const std::string& path) {
  size_t end = path.size();
  while (end > 1 && path[end - 1] == '/') --end;
  const size_t slash = path.rfind('/', end ? end - 1 : 0);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_folders(const std::string& path) {
  const PathKind kind = path_kind(path);
  if (kind == PathKind::folder) return;
  check<ResourceError>(kind == PathKind::nothing, "cannot make {}: it is there and not a folder",
                       path);
  const std::string parent = parent_folder(path);
  if (parent != path) make_folders(parent);
  if (file_calls::mkdir(path, 0777) != 0) {
    const int error = errno;
    check<ResourceError>(error == EEXIST, "cannot make {}: {}", path, errno_text(error));
    return;
  }
  sync_if_readable(parent);
}

void remove_tree(const std::string& path) {
  struct stat found {};
  if (file_calls::lstat(path, &found) != 0) {
    const int error = errno;
    check<ResourceError>(is_absent(error), "cannot look at {}: {}", path, errno_text(error));
    return;
  }
  const bool folder = S_ISDIR(found.st_mode);
  if (folder)
    for (const std::string& name : list_folder(path)) remove_tree(path + "/" + name);
  if ((folder ? file_calls::rmdir(path) : file_calls::unlink(path)) != 0) {
    const int error = errno;
    check<ResourceError>(error == ENOENT, "cannot delete {}: {}", path, errno_text(error));
  }
}

}  // namespace trireme
