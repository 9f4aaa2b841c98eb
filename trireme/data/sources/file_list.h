// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

struct ListedFile {
  std::string path;  // as the system opens it
  std::string
      name;  // below the folder it was found in (or the file's own name): the same on every machine
  bool outright = false;  // named by the caller, not found in a folder or by a glob
};

/// The regular files that `paths` (files, folders, globs) mean, sorted by the bytes of name, then
/// path; each file once. Folders are read recursively, symbolic links followed (a folder is entered
/// once, so loops end); hidden entries, sockets, pipes and dangling links in them are left out.
/// `extensions` (".h" or "h"; empty: all) filter what folders and globs yield, not files named
/// outright. Throws UsageError (missing path, nothing matched, not a file or folder) or
/// ResourceError (a folder that cannot be read).
TRIREME_API std::vector<ListedFile> list_files(const std::vector<std::string>& paths,
                                               const std::vector<std::string>& extensions = {});

}  // namespace trireme
