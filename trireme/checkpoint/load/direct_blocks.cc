// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/direct_blocks.h"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <span>
#include <utility>

#include "trireme/checkpoint/load/verify.h"
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

DirectBlocks::DirectBlocks(const OpenedStep& opened, const LoadPlan& plan,
                           const std::vector<BlockRange>& own)
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
        for (const BlockRange& range : in_both({{first + whole.begin, first + whole.end}}, own)) {
          append(found, range);
          const PartBytes at = opened.bytes(*source.saved, part);
          for (int64_t i = range.begin - first; i < range.end - first; ++i)
            pieces_.push_back({at.file, at.begin + static_cast<uint64_t>(i * block),
                               static_cast<uint64_t>(std::min(block, bytes - i * block)), &part,
                               static_cast<uint64_t>(i), (to - from) * each + i * block});
        }
      });
    }
  }
  first_.push_back(pieces_.size());
  for (uint64_t bytes = 0; Piece & piece : pieces_)
    piece.before = std::exchange(bytes, bytes + piece.size);
  blocks_ = joined(std::move(found));
}

void DirectBlocks::read(const Piece& piece, uint8_t* to) const {
  constexpr uint64_t kAtOnce = uint64_t{256} << 10;  // still in a core's cache when it is summed
  Checksum checksum;
  for (uint64_t done = 0; done < piece.size;) {
    const std::span<uint8_t> bytes(to + piece.to + done, std::min(kAtOnce, piece.size - done));
    piece.file->read(piece.begin + done, bytes);
    checksum.add(bytes.data(), bytes.size());
    done += bytes.size();
  }
  const auto block = static_cast<uint64_t>(opened_->index().block);  // 0: the only one
  compare_checksum(*opened_, *piece.part, piece.number, piece.number * block, piece.size, checksum);
}

void DirectBlocks::read(size_t tensor, uint8_t* to) const {
  constexpr uint64_t kReadAhead = uint64_t{16} << 20;
  if (pieces_.empty()) return;
  const auto begin = static_cast<int64_t>(first_[tensor]),
             end = static_cast<int64_t>(first_[tensor + 1]);
  std::mutex mutex;
  int64_t failed_at = end, announced = announced_;
  std::exception_ptr failure;
  at::parallel_for(begin, end, 4, [&](int64_t first, int64_t last) {
    // Who has the tensor's last blocks has the disk begin with the next tensors'.
    const auto known = last == end ? static_cast<int64_t>(pieces_.size()) : last;
    int64_t next = std::max(first, announced_), i = first;
    try {
      for (; i < last; ++i) {
        const Piece& piece = pieces_[static_cast<size_t>(i)];
        for (; next < known; ++next) {
          const Piece& ahead = pieces_[static_cast<size_t>(next)];
          if (ahead.before - piece.before >= kReadAhead) break;
          ahead.file->will_read(ahead.begin, ahead.size);
        }
        read(piece, to);
      }
      if (last == end) announced = next;
    } catch (...) {
      std::lock_guard lock(mutex);
      if (i < failed_at) failed_at = i, failure = std::current_exception();
    }
  });
  announced_ = announced;
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme
