// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/direct_blocks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <utility>

#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"

namespace trireme {

int64_t DirectBlocks::block_of(const IndexPart& part, int64_t each) const {
  const int64_t block = opened_->index().block;
  return block == 0 ? part.slice.numel() * each : block;
}

BlockRange DirectBlocks::whole_blocks(const IndexPart& part, int64_t from, int64_t run,
                                      int64_t each) const {
  if (opened_ == nullptr) return {};
  const int64_t block = block_of(part, each), end = (from + run) * each;
  if (block % each != 0) return {};  // an element lies in two blocks
  return {(from * each + block - 1) / block,
          from + run == part.slice.numel() ? (end + block - 1) / block : end / block};
}

DirectBlocks::DirectBlocks(const OpenedStep& opened, const LoadPlan& plan, const BlockShare& share)
    : opened_(&opened) {
  std::vector<BlockRange> found;
  for (const TensorSource& source : plan.tensors) {
    first_.push_back(pieces_.size());
    if (!source.saved || !source.in_place) continue;
    const int64_t each = safetensors_item_size(source.saved->dtype);
    for (const Copy& copy : plan.copies_of(source)) {
      const IndexPart& part = source.saved->parts[copy.part];
      const int64_t block = block_of(part, each), bytes = part.slice.numel() * each;
      for_each_run(copy, [&](int64_t from, int64_t to, int64_t run) {
        const BlockRange whole = whole_blocks(part, from, run, each);
        if (whole.begin >= whole.end) return;
        const int64_t first = part.first_block;
        const PartBytes at = opened.bytes(*source.saved, part);
        const BlockRange all{first + whole.begin, first + whole.end};
        append(found, all);
        const auto add = [&](const BlockRange& range, bool compares) {
          for (int64_t i = range.begin - first; i < range.end - first; ++i)
            pieces_.push_back({at.file, at.begin + static_cast<uint64_t>(i * block),
                               static_cast<uint64_t>(std::min(block, bytes - i * block)), &part,
                               static_cast<uint64_t>(i), (to - from) * each + i * block, 0,
                               compares});
        };
        int64_t done = all.begin;
        for (const BlockRange& range : in_both({all}, share.own)) {
          add({done, range.begin}, false);
          add(range, true);
          done = range.end;
        }
        add({done, all.end}, false);
      });
    }
  }
  first_.push_back(pieces_.size());
  for (uint64_t bytes = 0; Piece & piece : pieces_)
    piece.before = std::exchange(bytes, bytes + piece.size);
  blocks_ = joined(std::move(found));
  find_windows(share);
}

// Small ones, of which there may be thousands, are not worth a window.
void DirectBlocks::find_windows(const BlockShare& share) {
  constexpr uint64_t kLeast = uint64_t{512} << 10, kPage = PartSource::kPage;
  const auto wanted = [&](const Piece& piece) {
    const int64_t block = piece.part->first_block + static_cast<int64_t>(piece.number);
    return has_block(share.alone, block)    ? Wanted::alone
           : has_block(share.of_all, block) ? Wanted::by_all
                                            : Wanted::by_some;
  };
  for (size_t i = 0; i < pieces_.size();) {
    const uint64_t begin = pieces_[i].begin, page = begin / kPage * kPage;
    const Wanted by = wanted(pieces_[i]);
    uint64_t end = begin;
    size_t next = i;
    for (; next < pieces_.size(); ++next) {
      const Piece& piece = pieces_[next];
      if (piece.file != pieces_[i].file || piece.begin != end ||
          end + piece.size - page > WindowReader::kWindow || wanted(piece) != by)
        break;
      end += piece.size;
    }
    if (next > i && end - begin >= kLeast && pieces_[i].file->is_on_disk()) {
      for (size_t n = i; n < next; ++n) pieces_[n].window = windows_.size();
      windows_.push_back({{pieces_[i].file, begin, end - begin}, i, next, by});
    }
    i = std::max(next, i + 1);
  }
}

// A rank that has much of its own to read before the next window of all would keep the others
// waiting.
std::string DirectBlocks::windows_of_all() const {
  constexpr uint64_t kUneven = uint64_t{64} << 20;
  Checksum all;
  uint64_t bytes = 0;  // of those before
  for (const Window& window : windows_) {
    if (window.wanted != Wanted::by_all) continue;
    const uint64_t others = pieces_[window.first].before - bytes;
    bytes += window.bytes.size;
    const std::string& path = window.bytes.file->path();
    const std::array<uint64_t, 4> where{others / kUneven, path.size(), window.bytes.begin,
                                        window.bytes.size};
    all.add(where.data(), sizeof where);
    all.add(path.data(), path.size());
  }
  return all.hex();
}

void DirectBlocks::begin(std::optional<Group> group) {
  std::vector<SharedWindows::Window> ahead;
  for (Window& window : windows_) {
    const bool together = window.wanted == Wanted::by_all && group;
    window.read_ahead = together || window.wanted == Wanted::alone;
    if (window.read_ahead) ahead.push_back({window.bytes, together});
  }
  if (!ahead.empty()) reader_ = std::make_unique<SharedWindows>(ahead, std::move(group));
}

constexpr uint64_t kAtOnce = uint64_t{256} << 10;  // still in a core's cache when it is summed

void DirectBlocks::compare(const Piece& piece, const Checksum& checksum) const {
  const auto block = static_cast<uint64_t>(opened_->index().block);  // 0: the only one
  compare_checksum(*opened_, *piece.part, piece.number, piece.number * block, piece.size, checksum);
}

void DirectBlocks::read(const Piece& piece, uint8_t* to) const {
  Checksum checksum;
  for (uint64_t done = 0; done < piece.size;) {
    const std::span<uint8_t> bytes(to + piece.to + done, std::min(kAtOnce, piece.size - done));
    piece.file->read(piece.begin + done, bytes);
    if (piece.compares) checksum.add(bytes.data(), bytes.size());
    done += bytes.size();
  }
  if (piece.compares) compare(piece, checksum);
}

void DirectBlocks::take(const Piece& piece, uint8_t* to) const {
  const uint8_t* const from = window_.data() + (piece.begin - windows_[piece.window].bytes.begin);
  Checksum checksum;
  for (uint64_t done = 0; done < piece.size; done += kAtOnce) {
    const auto n = static_cast<size_t>(std::min(kAtOnce, piece.size - done));
    if (window_compares_) checksum.add(from + done, n);
    std::memcpy(to + piece.to + done, from + done, n);
  }
  if (window_compares_) compare(piece, checksum);
}

// Of a window that is read ahead, the pieces from this one on that are before `end`. Returns the
// first that is not taken.
size_t DirectBlocks::take(size_t piece, size_t end, uint8_t* to) {
  const size_t number = pieces_[piece].window;
  const Window& window = windows_[number];
  if (window_number_ != number) {
    window_number_ = number;
    window_compares_ = reader_->reads_next();
    // A file has one part of a tensor, so memory behind each other is as far as the file's bytes.
    const Piece &first = pieces_[window.first], &last = pieces_[window.last - 1];
    const bool as_a_whole =
        window.last <= end && static_cast<uint64_t>(last.to - first.to) == last.begin - first.begin;
    if (!window_compares_ && as_a_whole) {
      reader_->take_to(to + first.to);
      return window.last;
    }
    window_ = reader_->take();
  }
  for (end = std::min(end, window.last); piece < end; ++piece) take(pieces_[piece], to);
  return end;
}

void DirectBlocks::read(size_t tensor, uint8_t* to) {
  if (pieces_.empty()) return;
  const size_t end = first_[tensor + 1];
  for (size_t i = first_[tensor]; i < end;) {
    if (is_read_ahead(pieces_[i])) {
      i = take(i, end, to);
      continue;
    }
    size_t last = i;
    while (last < end && !is_read_ahead(pieces_[last])) ++last;
    read_each(static_cast<int64_t>(i), static_cast<int64_t>(last), to);
    i = last;
  }
}

void DirectBlocks::pass_over(size_t tensors) noexcept {
  if (!reader_) return;
  const size_t end = first_[std::min(tensors, first_.size() - 1)];
  reader_->pass_over(
      static_cast<size_t>(std::count_if(windows_.begin(), windows_.end(), [&](const Window& w) {
        return w.read_ahead && w.first < end;
      })));
}

// The disk begins with what follows. Large windows are reader_'s, or left to the kernel, which sees
// that a file is read from front to back and does that better (measured: half the CPU time).
void DirectBlocks::announce(int64_t at) {
  constexpr uint64_t kReadAhead = uint64_t{16} << 20;
  const uint64_t before = pieces_[static_cast<size_t>(at)].before;
  announced_ = std::max(announced_, at);
  for (; announced_ < static_cast<int64_t>(pieces_.size()); ++announced_) {
    const Piece& ahead = pieces_[static_cast<size_t>(announced_)];
    if (ahead.before - before >= kReadAhead) return;
    if (ahead.window == kNoWindow) ahead.file->will_read(ahead.begin, ahead.size);
  }
}

// On LibTorch's threads, each of which takes the next piece; of several errors the first.
void DirectBlocks::read_each(int64_t begin, int64_t end, uint8_t* to) {
  constexpr int64_t kFew = 4;  // are not worth a thread
  std::mutex mutex;
  std::atomic<int64_t> next{begin};
  int64_t failed_at = end;
  std::exception_ptr failure;
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (end - begin + kFew - 1) / kFew);
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < end; i = next++) {
      try {
        if (std::unique_lock lock(mutex, std::try_to_lock); lock) announce(i);
        read(pieces_[static_cast<size_t>(i)], to);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (i < failed_at) failed_at = i, failure = std::current_exception();
        next = end;  // those before it are with other threads
        return;
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme
