// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

struct stat;

namespace trireme {

class ReopenedFile;

/// Bounds how many of the files that are read together are open: ranks leave thousands of files,
/// and a process may open 1024. Threads may use it together.
class TRIREME_API OpenFiles {
 public:
  /// Up to a sixteenth of what this process may open, as ranks may be its threads; at least 4.
  OpenFiles();

 private:
  friend class ReopenedFile;
  using Descriptor = std::shared_ptr<const UniqueFd>;  // open while somebody has it
  struct Entry {
    const ReopenedFile* of;
    Descriptor descriptor;
  };

  Descriptor find(const ReopenedFile* file);
  Descriptor keep(const ReopenedFile* file, UniqueFd fd);
  bool close_one();
  void forget(const ReopenedFile* file);

  const size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // used last first
  std::unordered_map<const ReopenedFile*, std::list<Entry>::iterator> by_file_;
};

/// A file that is read. Its descriptor may be closed when others of `files` were used later, and is
/// opened again when it is needed.
class TRIREME_API ReopenedFile {
 public:
  /// Corrupt, naming the file, where it is not there or has another size; ResourceError where it
  /// cannot be opened.
  ReopenedFile(std::string path, uint64_t size, std::shared_ptr<OpenFiles> files,
               int more_flags = 0);  // of open(2)
  ReopenedFile(const ReopenedFile&) = delete;
  ~ReopenedFile();

  /// Corrupt where it was deleted, or another file is in its place; ResourceError.
  std::shared_ptr<const UniqueFd> descriptor() const;
  bool is_same_file_as(const ReopenedFile& other) const {
    return device_ == other.device_ && number_ == other.number_;
  }

 private:
  UniqueFd open(struct ::stat* info) const;

  std::string path_;
  uint64_t size_;
  int more_flags_;
  dev_t device_ = 0;
  ino_t number_ = 0;
  std::shared_ptr<OpenFiles> files_;
};

}  // namespace trireme
