// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/step_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/base/file.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/large_pages.h"
#include "trireme/checkpoint/steps/write_behind.h"

namespace trireme {
namespace {

constexpr size_t kPage = OutputFile::kPage;
constexpr size_t kWindow = size_t{8} << 20;
constexpr size_t kLarge = size_t{1} << 20;  // worth a call of its own

/// Memory that lies as a file's pages do.
class Window {
 public:
  /// Empties it; what comes next belongs there.
  void begin(uint64_t at) {
    if (!memory_) memory_ = LargePages(kWindow);
    at_ = at, size_ = 0;
  }
  uint64_t at() const { return at_; }
  uint64_t end() const { return at_ + size_; }
  size_t size() const { return size_; }
  const char* bytes() const { return memory_.data() + at_ % kPage; }
  /// It is full at the end of a page of the file.
  size_t room() const { return kWindow - at_ % kPage - size_; }
  void add(const char* from, size_t n) {
    std::memcpy(memory_.data() + at_ % kPage + size_, from, n);
    size_ += n;
  }

 private:
  LargePages memory_;
  uint64_t at_ = 0;
  size_t size_ = 0;
};

using Windows = std::array<Window, WriteBehind::kPieces + 1>;  // one more is filled

/// One file's writes: neighbours leave together.
class PieceWriter {
 public:
  PieceWriter(OutputFile& file, Windows& windows) : file_(file), windows_(windows) {}

  void copy(uint64_t at, const char* from, size_t n) {
    if (window().size() > 0 && window().end() != at) flush();
    while (n > 0) {
      if (window().size() == 0) window().begin(at);
      const size_t some = std::min(n, window().room());
      window().add(from, some);
      at += some, from += some, n -= some;
      if (window().room() == 0) hand_over();
    }
  }
  /// Of memory that stays and lies as the file's pages do.
  void from_where_it_is(uint64_t at, const char* from, size_t n) {
    if (window().size() > 0) flush();
    behind_.write(file_, at, from, n);
  }
  void finish() {
    flush();
    file_.finish();
  }

 private:
  Window& window() { return windows_[turn_]; }
  void hand_over() {
    behind_.write(file_, window().at(), window().bytes(), window().size());
    turn_ = (turn_ + 1) % windows_.size();
    window().begin(0);
  }
  void flush() {
    behind_.wait();
    if (window().size() == 0) return;
    file_.write_at(window().at(), window().bytes(), window().size());
    window().begin(0);
  }

  OutputFile& file_;
  Windows& windows_;
  size_t turn_ = 0;
  WriteBehind behind_;
};

/// From the first byte that these orders write to a file to the last; `first` is the file's first
/// write.
void reserve(OutputFile& file, const std::vector<PlannedWrite>& writes, size_t first) {
  const PlannedWrite* last = &writes[first];
  int64_t bytes = 0;
  for (size_t i = first; i < writes.size() && writes[i].file == last->file; ++i)
    last = &writes[i], bytes += last->bytes;
  const int64_t begin = writes[first].at, end = last->at + last->bytes;
  if (bytes >= static_cast<int64_t>(kLarge))
    file.reserve(static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin));
}

}  // namespace

std::vector<size_t> memory_layout(const WriteOrders& orders) {
  std::vector<size_t> offsets;
  size_t end = 0;
  for (const PlannedWrite& w : orders.writes) {
    const size_t in_page = static_cast<size_t>(w.at) % kPage;
    offsets.push_back(end + (in_page + kPage - end % kPage) % kPage);
    end = offsets.back() + static_cast<size_t>(w.bytes);
  }
  offsets.push_back(end);
  return offsets;
}

std::vector<uint64_t> write_step_files(const std::string& folder, const WriteOrders& orders,
                                       const BytesOfWrite& bytes_of, BytesLast last) {
  std::vector<uint64_t> checksums;
  Windows windows;
  size_t next = 0;
  for (size_t f = 0; f < orders.files.size(); ++f) {
    const PlannedFile& planned = orders.files[f];
    const bool writes = next < orders.writes.size() && orders.writes[next].file == f;
    if (planned.head.empty() && !writes) continue;
    OutputFile file(folder + "/" + planned.name, OutputFile::Others::write_too);
    file.go_direct();
    if (writes) reserve(file, orders.writes, next);
    for (Window& window : windows) window.begin(0);
    PieceWriter out(file, windows);
    out.copy(0, planned.head.data(), planned.head.size());
    for (; next < orders.writes.size() && orders.writes[next].file == f; ++next) {
      const PlannedWrite& w = orders.writes[next];
      const auto* from = static_cast<const char*>(bytes_of(next));
      const auto at = static_cast<uint64_t>(w.at);
      const auto bytes = static_cast<size_t>(w.bytes);
      const bool in_place = last == BytesLast::to_the_end && bytes >= kLarge &&
                            reinterpret_cast<uintptr_t>(from) % kPage == at % kPage;
      size_t sent = 0;
      for (size_t done = 0; done < bytes;) {
        const size_t n = std::min(bytes - done, static_cast<size_t>(CheckpointIndex::kBlock));
        checksums.push_back(Checksum::number_of(from + done, n));
        if (!in_place) out.copy(at + done, from + done, n);  // it is still in the cache
        done += n;
        // Pieces end with a page of the file.
        const size_t end = done == bytes ? bytes : (at + done) / kPage * kPage - at;
        if (!in_place || (end - sent < kWindow && done < bytes)) continue;
        out.from_where_it_is(at + sent, from + sent, end - sent);
        sent = end;
      }
    }
    out.finish();
  }
  return checksums;
}

void write_index(const std::string& folder, const CheckpointIndex& index) {
  const std::string text = index_text(index);
  OutputFile file(folder + "/" + CheckpointIndex::kFileName);
  file.write(text.data(), text.size());
  file.finish();
  fsync_path(folder);
}

}  // namespace trireme
