// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "trireme/base/export.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {

/// What the bytes of parts are read from: a file of a step, or what ranks hold of one in memory
/// before it is there. Threads may read together.
class TRIREME_API PartSource {
 public:
  virtual ~PartSource() = default;

  const std::string& path() const { return path_; }  // for messages
  uint64_t head_size() const { return head_size_; }
  size_t count() const { return count_; }  // of tensors
  /// The bytes of a part. Corrupt when they are not in the file as the index says.
  const interop::SafetensorsEntry& find(const IndexPart& part, const std::string& dtype) const;
  /// Gives back the memory of what find() looks up; it finds nothing any more.
  void forget_entries() { std::exchange(entries_, {}); }

  /// ResourceError with the system's reason.
  virtual void read(uint64_t at, std::span<uint8_t> to) const = 0;
  /// These bytes are read soon.
  virtual void will_read(uint64_t, uint64_t) const {}
  static constexpr uint64_t kPage = OutputFile::kPage;
  /// The first `size` bytes from `at` on, for memory of whole pages behind each other, all of which
  /// may be written to; `at` is a multiple of kPage. Past the page cache where that does not have
  /// them.
  virtual void read_pages(uint64_t at, std::span<uint8_t> to, uint64_t size) const {
    read(at, to.first(size));
  }
  /// Whether read_pages() is worth memory and threads of its own.
  virtual bool is_on_disk() const { return false; }
  /// As read(), for what was read before.
  virtual void read_again(uint64_t at, std::span<uint8_t> to) const { read(at, to); }

 protected:
  explicit PartSource(std::string path) : path_(std::move(path)) {}
  /// All before the data. Corrupt, naming the path, when that is not as the index says.
  void take_head(std::span<const uint8_t> head, const IndexFile& expected);

 private:
  std::string path_;
  uint64_t head_size_ = 0;
  size_t count_ = 0;
  std::deque<interop::SafetensorsEntry> entries_;  // by name
};

}  // namespace trireme
