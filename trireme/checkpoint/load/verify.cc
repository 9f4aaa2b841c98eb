// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/verify.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"

namespace trireme {
namespace {

constexpr uint64_t kReadAtOnce = uint64_t{256} << 10;  // stays in a core's cache
constexpr uint64_t kReadAhead = uint64_t{16} << 20;

struct PartOfStep {
  const IndexTensor* tensor;
  const IndexPart* part;
  int64_t first;  // the number of its first block
};

// Every part with blocks, in the order of names, in which the blocks are numbered.
std::vector<PartOfStep> parts_of(const CheckpointIndex& index) {
  std::vector<PartOfStep> parts;
  int64_t next = 0;
  for (const auto& [name, t] : index.tensors)
    for (const IndexPart& part : t.parts) {
      if (part.slice.numel() == 0) continue;
      parts.push_back({&t, &part, next});
      next += static_cast<int64_t>(part.blocks.size());
    }
  return parts;
}

template <class Body>
void for_each_copy(const LoadPlan& plan, const Body& body) {
  for (const TensorSource& source : plan.tensors) {
    if (!source.saved) continue;
    for (const Copy& copy : source.copies) body(*source.saved, copy);
    for (const auto& row : source.rows)
      for (const Copy& copy : row) body(*source.saved, copy);
  }
}

/// The same on ranks that share a page cache and number the same blocks alike.
std::string where(const OpenedStep& opened) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat info {};
  if (boot.empty() ||
      file_calls::stat(opened.folder() + "/" + CheckpointIndex::kFileName, &info) != 0)
    return "";
  Checksum blocks;
  for (const PartOfStep& p : parts_of(opened.index())) {
    blocks.add(p.part->file.data(), p.part->file.size());
    blocks.add(p.part->blocks.data(), p.part->blocks.size() * sizeof(uint64_t));
  }
  return fmt::format("{} {} {} {}", boot, info.st_dev, info.st_ino, blocks.hex());
}

struct Block {
  const PartOfStep* of;
  PartBytes at;     // of the part
  uint64_t number;  // in the part
  uint64_t size;
  uint64_t begin() const { return at.begin + begin_in_part; }
  uint64_t begin_in_part;
};

std::vector<Block> blocks_in(const OpenedStep& opened, const std::vector<PartOfStep>& parts,
                             const std::vector<BlockRange>& ranges) {
  std::vector<Block> blocks;
  const auto of_block = static_cast<uint64_t>(opened.index().block);
  auto part = parts.begin();
  for (const BlockRange& range : ranges)
    for (int64_t i = range.begin; i < range.end;) {
      while (part + 1 != parts.end() && (part + 1)->first <= i) ++part;
      const PartBytes at = opened.bytes(*part->tensor, *part->part);
      const uint64_t each = of_block == 0 ? at.size : of_block;
      const int64_t end = part->first + static_cast<int64_t>(part->part->blocks.size());
      for (; i < std::min(end, range.end); ++i) {
        const auto number = static_cast<uint64_t>(i - part->first);
        blocks.push_back(
            {&*part, at, number, std::min(each, at.size - number * each), number * each});
      }
    }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::pair(a.at.file, a.begin()) < std::pair(b.at.file, b.begin());
  });
  return blocks;
}

void verify(const OpenedStep& opened, const Block& block, std::vector<uint8_t>& buffer) {
  Checksum checksum;
  for (uint64_t done = 0; done < block.size;) {
    buffer.resize(static_cast<size_t>(std::min(kReadAtOnce, block.size - done)));
    block.at.file->read(block.begin() + done, buffer);
    checksum.add(buffer.data(), buffer.size());
    done += buffer.size();
  }
  const IndexPart& part = *block.of->part;
  check<Corrupt>(checksum.number() == part.blocks.at(block.number),
                 "{}/{}: the checksum of tensor '{}' does not fit (bytes {} to {} of it)",
                 opened.folder(), part.file, place_of(part.slice.name).key, block.begin_in_part,
                 block.begin_in_part + block.size - 1);
}

// On LibTorch's threads; of several errors the first in the order of files and bytes.
void verify_blocks(const OpenedStep& opened, const std::vector<Block>& blocks) {
  std::mutex mutex;
  auto failed_at = static_cast<int64_t>(blocks.size());
  std::exception_ptr failure;
  at::parallel_for(0, failed_at, 4, [&](int64_t first, int64_t last) {
    std::vector<uint8_t> buffer;
    uint64_t ahead = 0;  // bytes from block i to block `next`
    int64_t next = first, i = first;
    try {
      for (; i < last; ++i) {
        for (; next < last && ahead < kReadAhead; ++next) {
          const Block& block = blocks[static_cast<size_t>(next)];
          block.at.file->will_read(block.begin(), block.size);
          ahead += block.size;
        }
        verify(opened, blocks[static_cast<size_t>(i)], buffer);
        ahead -= blocks[static_cast<size_t>(i)].size;
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (i < failed_at) failed_at = i, failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::vector<BlockRange> BlocksWanted::ranges() const {
  std::vector<BlockRange> ranges;
  for (size_t i = 0; i + 1 < ends.size(); i += 2) ranges.push_back({ends[i], ends[i + 1]});
  return ranges;
}

BlocksWanted blocks_wanted(const OpenedStep& opened, const LoadPlan& plan, bool shared) {
  const CheckpointIndex& index = opened.index();
  std::unordered_map<const IndexPart*, int64_t> first;
  for (const PartOfStep& p : parts_of(index)) first[p.part] = p.first;
  std::vector<BlockRange> ranges;
  for_each_copy(plan, [&](const IndexTensor& t, const Copy& copy) {
    const IndexPart& part = t.parts[copy.part];
    const int64_t at = first.at(&part), each = safetensors_item_size(t.dtype);
    const int64_t block =
        index.block == 0 ? std::max<int64_t>(part.slice.numel() * each, 1) : index.block;
    for_each_run(copy, [&](int64_t from, int64_t, int64_t run) {
      const BlockRange range{at + from * each / block, at + ((from + run) * each - 1) / block + 1};
      if (!ranges.empty() && ranges.back().begin <= range.begin && range.begin <= ranges.back().end)
        ranges.back().end = std::max(ranges.back().end, range.end);
      else
        ranges.push_back(range);
    });
  });
  BlocksWanted wanted{shared ? where(opened) : "", {}};
  for (const BlockRange& range : joined(std::move(ranges))) {
    wanted.ends.push_back(range.begin);
    wanted.ends.push_back(range.end);
  }
  return wanted;
}

void open_and_verify(OpenedStep& opened, const std::vector<BlocksWanted>& all, size_t rank) {
  const std::vector<PartOfStep> parts = parts_of(opened.index());
  const std::vector<BlockRange> own = all[rank].ranges();
  std::set<std::string> files;
  for (const PartOfStep& p : parts) {
    const int64_t end = p.first + static_cast<int64_t>(p.part->blocks.size());
    const auto range = std::partition_point(
        own.begin(), own.end(), [&](const BlockRange& wanted) { return wanted.end <= p.first; });
    if (range != own.end() && range->begin < end) files.insert(p.part->file);
  }
  opened.open(files);
  std::vector<std::vector<BlockRange>> host;
  size_t mine = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    if (r == rank) mine = host.size();
    if (r == rank || (!all[r].where.empty() && all[r].where == all[rank].where))
      host.push_back(all[r].ranges());
  }
  verify_blocks(opened, blocks_in(opened, parts, deal_reads(host)[mine]));
}

void verify_foreign(const OpenedStep& opened, const LoadPlan& plan) {
  std::set<const IndexPart*> parts;
  for_each_copy(plan, [&](const IndexTensor& t, const Copy& copy) {
    const IndexPart& part = t.parts[copy.part];
    if (parts.insert(&part).second) opened.verify_foreign(part);
  });
}

void verify_all_blocks(OpenedStep& opened) {
  std::set<std::string> files;
  for (const auto& [name, info] : opened.index().files) files.insert(name);
  opened.open(files);
  const std::vector<PartOfStep> parts = parts_of(opened.index());
  if (parts.empty()) return;
  const PartOfStep& last = parts.back();
  const int64_t end = last.first + static_cast<int64_t>(last.part->blocks.size());
  verify_blocks(opened, blocks_in(opened, parts, {{0, end}}));
}

}  // namespace trireme
