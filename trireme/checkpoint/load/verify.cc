// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/verify.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/checkpoint/load/block_numbers.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"

namespace trireme {
namespace {

constexpr uint64_t kReadAtOnce = uint64_t{256} << 10;  // stays in a core's cache
constexpr uint64_t kReadAhead = uint64_t{16} << 20;

template <class Body>
void for_each_copy(const LoadPlan& plan, const Body& body) {
  for (const TensorSource& source : plan.tensors) {
    if (!source.saved) continue;
    for (const Copy& copy : plan.copies_of(source)) body(*source.saved, copy);
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
  const IndexPart* part;
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
      while (part + 1 != parts.end() && (part + 1)->part->first_block <= i) ++part;
      const PartBytes at = opened.bytes(*part->tensor, *part->part);
      const uint64_t each = of_block == 0 ? at.size : of_block;
      const int64_t first = part->part->first_block;
      const int64_t end = first + static_cast<int64_t>(part->part->blocks.size());
      for (; i < std::min(end, range.end); ++i) {
        const auto number = static_cast<uint64_t>(i - first);
        blocks.push_back(
            {part->part, at, number, std::min(each, at.size - number * each), number * each});
      }
    }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::pair(a.at.file, a.begin()) < std::pair(b.at.file, b.begin());
  });
  return blocks;
}

void verify_block(const OpenedStep& opened, const Block& block, std::vector<uint8_t>& buffer) {
  Checksum checksum;
  for (uint64_t done = 0; done < block.size;) {
    buffer.resize(static_cast<size_t>(std::min(kReadAtOnce, block.size - done)));
    block.at.file->read(block.begin() + done, buffer);
    checksum.add(buffer.data(), buffer.size());
    done += buffer.size();
  }
  compare_checksum(opened, *block.part, block.number, block.begin_in_part, block.size, checksum);
}

// On LibTorch's threads; of several errors the first in the order of files and bytes.
void verify_each(const OpenedStep& opened, const std::vector<Block>& blocks) {
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
        verify_block(opened, blocks[static_cast<size_t>(i)], buffer);
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
  std::vector<BlockRange> ranges;
  for_each_copy(plan, [&](const IndexTensor& t, const Copy& copy) {
    const IndexPart& part = t.parts[copy.part];
    const int64_t at = part.first_block, each = safetensors_item_size(t.dtype);
    const int64_t block =
        index.block == 0 ? std::max<int64_t>(part.slice.numel() * each, 1) : index.block;
    for_each_run(copy, [&](int64_t from, int64_t, int64_t run) {
      append(ranges, {at + from * each / block, at + ((from + run) * each - 1) / block + 1});
    });
  });
  BlocksWanted wanted{.where = shared ? where(opened) : "", .ends = {}};
  for (const BlockRange& range : joined(std::move(ranges))) {
    wanted.ends.push_back(range.begin);
    wanted.ends.push_back(range.end);
  }
  return wanted;
}

BlockShare share_of(const std::vector<BlocksWanted>& all, size_t rank) {
  BlockShare share;
  const std::string& host = all[rank].where;
  if (host.empty()) return {.own = all[rank].ranges(), .alone = all[rank].ranges(), .of_all = {}};
  std::vector<std::vector<BlockRange>> wanted;  // by the ranks of this host
  std::vector<BlockRange> others, of_all = all[rank].ranges();
  size_t mine = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].where != host) continue;
    if (r == rank) mine = wanted.size();
    wanted.push_back(all[r].ranges());
    if (r == rank) continue;
    others.insert(others.end(), wanted.back().begin(), wanted.back().end());
    of_all = in_both(of_all, wanted.back());
  }
  share.own = std::move(deal_reads(wanted)[mine]);
  share.alone = without(wanted[mine], joined(std::move(others)));
  if (wanted.size() == all.size() && wanted.size() > 1) share.of_all = std::move(of_all);
  return share;
}

void open_files_of(OpenedStep& opened, const std::vector<BlockRange>& blocks) {
  std::set<std::string> files;
  for (const PartOfStep& p : parts_of(opened.index())) {
    const int64_t first = p.part->first_block;
    const int64_t end = first + static_cast<int64_t>(p.part->blocks.size());
    const auto range = std::partition_point(
        blocks.begin(), blocks.end(), [&](const BlockRange& some) { return some.end <= first; });
    if (range != blocks.end() && range->begin < end) files.insert(p.part->file);
  }
  opened.open(files);
}

void verify_blocks(const OpenedStep& opened, const std::vector<BlockRange>& blocks) {
  if (blocks.empty()) return;
  const std::vector<PartOfStep> parts = parts_of(opened.index());
  verify_each(opened, blocks_in(opened, parts, blocks));
}

void compare_checksum(const OpenedStep& opened, const IndexPart& part, uint64_t number,
                      uint64_t begin, uint64_t size, const Checksum& checksum) {
  check<Corrupt>(
      checksum.number() == part.blocks.at(number),
      "{}/{}: the checksum of tensor '{}' does not fit (bytes {} to {} of it): it is {}; "
      "the index says {}",
      opened.folder(), part.file, place_of(part.slice.name).key, begin, begin + size - 1,
      checksum.hex(), Checksum::hex_of(part.blocks.at(number)));
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
  const IndexPart& last = *parts.back().part;
  const int64_t end = last.first_block + static_cast<int64_t>(last.blocks.size());
  verify_each(opened, blocks_in(opened, parts, {{0, end}}));
}

}  // namespace trireme
