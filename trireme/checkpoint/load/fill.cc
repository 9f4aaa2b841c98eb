// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/fill.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

constexpr uint64_t kWindow = uint64_t{4} << 20;  // what a thread reads at a time
constexpr uint64_t kGap = uint64_t{64} << 10;    // … with holes as long as this
constexpr size_t kWindows = 8;                   // … and how many there are at once
constexpr size_t kRuns = size_t{1} << 16;        // … with so many runs in them

struct Run {
  uint64_t from;  // byte in the file
  int64_t to;     // … and in the tensor
  size_t bytes;
};

/// Bytes that lie together in a file, with the runs in them.
struct Window {
  const PartSource* file;
  uint64_t begin, end;
  size_t first, last;  // runs
};

/// The runs of some copies, a few windows at a time: a part may be larger than memory that is left.
class Windows {
 public:
  /// body(bytes of the run, run), on LibTorch's threads; a run that is a window by itself is read
  /// to where it belongs behind `to`. `runs` gives the runs of a copy as for_each_run() does.
  template <class Runs, class Body>
  void for_each(const OpenedStep& opened, const IndexTensor& t, std::span<const Copy> copies,
                int64_t each, uint8_t* to, const Runs& runs, const Body& body) {
    for (const Copy& copy : copies) {
      const PartBytes part = opened.bytes(t, t.parts[copy.part]);
      runs(copy, [&](int64_t at, int64_t dest, int64_t run) {
        const auto bytes = static_cast<uint64_t>(run * each);
        for (uint64_t done = 0; done < bytes; done += kWindow) {
          const Run piece{part.begin + static_cast<uint64_t>(at * each) + done,
                          dest * each + static_cast<int64_t>(done),
                          static_cast<size_t>(std::min(kWindow, bytes - done))};
          const bool fits = fits_last(part.file, piece);
          if (runs_.size() == kRuns || (!fits && windows_.size() == kWindows)) flush(to, body);
          add(part.file, piece, fits);
        }
      });
    }
    flush(to, body);
  }

 private:
  bool fits_last(const PartSource* file, const Run& run) const {
    if (windows_.empty()) return false;
    const Window& last = windows_.back();
    // What lies between two runs is read as well: no block that neither of them is in.
    return last.file == file && run.from >= last.begin && run.from <= last.end + kGap &&
           run.from + run.bytes - last.begin <= kWindow;
  }
  void add(const PartSource* file, const Run& run, bool fits) {
    if (!fits || windows_.empty())
      windows_.push_back({file, run.from, run.from, runs_.size(), runs_.size()});
    runs_.push_back(run);
    windows_.back().end = std::max(windows_.back().end, run.from + run.bytes);
    windows_.back().last = runs_.size();
  }
  template <class Body>
  void flush(uint8_t* to, const Body& body) {
    auto some = [&](int64_t first, int64_t last) {
      std::vector<uint8_t> bytes;
      for (int64_t i = first; i < last; ++i) {
        const Window& w = windows_[static_cast<size_t>(i)];
        if (w.last - w.first == 1) {
          w.file->read_again(w.begin, {to + runs_[w.first].to, runs_[w.first].bytes});
          continue;
        }
        bytes.resize(static_cast<size_t>(w.end - w.begin));
        w.file->read_again(w.begin, bytes);
        for (size_t r = w.first; r < w.last; ++r)
          body(bytes.data() + (runs_[r].from - w.begin), runs_[r]);
      }
    };
    at::parallel_for(0, static_cast<int64_t>(windows_.size()), 1, some);
    windows_.clear(), runs_.clear();
  }

  std::vector<Run> runs_;
  std::vector<Window> windows_;
};

// Larger tensors that are not filled in place are staged so many bytes at a time, …
constexpr int64_t kSlab = int64_t{4} << 20;
// … of which so many may be on their way to a device.
constexpr int64_t kUnderWay = int64_t{24} << 20;

/// Elements [begin, begin + count) of a slice, in the order of its memory.
Slice part_of(Slice slice, int64_t begin, int64_t count) {
  slice.flat = FlatRange{(slice.flat ? slice.flat->begin : 0) + begin, count};
  return slice;
}

/// Elements of `to` from `begin` on, row-major, become those of `from`, which has one dim.
void put(const at::Tensor& to, int64_t begin, const at::Tensor& from, bool in_stream_order) {
  const auto copy = [&](const at::Tensor& some, const at::Tensor& bytes) {
    if (in_stream_order)
      copy_in_stream_order(some, bytes);
    else
      some.copy_(bytes);
  };
  if (to.is_contiguous()) return copy(to.view({-1}).narrow(0, begin, from.numel()), from);
  const int64_t row = to.numel() / to.size(0);
  for (int64_t done = 0; done < from.numel();) {
    const int64_t at = begin + done, left = from.numel() - done;
    if (at % row != 0 || left < row) {
      const int64_t n = std::min(row - at % row, left);
      put(to.select(0, at / row), at % row, from.narrow(0, done, n), in_stream_order);
      done += n;
    } else {
      const at::Tensor rows = to.narrow(0, at / row, left / row);
      copy(rows, from.narrow(0, done, rows.numel()).view(rows.sizes()));
      done += rows.numel();
    }
  }
}

constexpr auto kAllRuns = [](const Copy& copy, const auto& body) { for_each_run(copy, body); };

}  // namespace

const TensorSource& Filler::next(const std::string& name, const at::Tensor& local) {
  check<UsageError>(next_ < plan_.tensors.size() && plan_.tensors[next_].shown == name &&
                        plan_.tensors[next_].numel == local.numel(),
                    "load: '{}' changed between two walks", name);
  return plan_.tensors[next_++];
}

void Filler::finish() const {
  check<UsageError>(next_ == plan_.tensors.size(), "load: '{}' changed between two walks",
                    next_ < plan_.tensors.size() ? plan_.tensors[next_].shown : "");
}

void Filler::copy(const IndexTensor& saved, std::span<const Copy> copies, at::Tensor& to) const {
  auto* bytes = static_cast<uint8_t*>(to.data_ptr());
  Windows().for_each(
      opened_, saved, copies, to.element_size(), bytes, kAllRuns,
      [&](const uint8_t* from, const Run& run) { std::memcpy(bytes + run.to, from, run.bytes); });
}

// All of it but for the direct blocks, which are read by direct_.
void Filler::fill_in_place(const TensorSource& source, at::Tensor& local) {
  auto* bytes = static_cast<uint8_t*>(local.data_ptr());
  const auto each = static_cast<int64_t>(local.element_size());
  direct_.read(number_of(source), bytes);
  const auto rest = [&](const Copy& copy, const auto& body) {
    const IndexPart& part = source.saved->parts[copy.part];
    for_each_run(copy, [&](int64_t from, int64_t to, int64_t run) {
      direct_.for_each_rest(part, from, run, each,
                            [&](int64_t at, int64_t n) { body(at, to + (at - from), n); });
    });
  };
  Windows().for_each(
      opened_, *source.saved, plan_.copies_of(source), each, bytes, rest,
      [&](const uint8_t* from, const Run& run) { std::memcpy(bytes + run.to, from, run.bytes); });
}

size_t Filler::number_of(const TensorSource& source) const {
  return static_cast<size_t>(&source - plan_.tensors.data());
}

void Filler::fill(const Slice& slice, const TensorSource& source, at::Tensor local) {
  if (local.numel() == 0) return;
  const IndexTensor& saved = *source.saved;
  const std::span<const Copy> copies = plan_.copies_of(source);
  const at::ScalarType dtype = safetensors_scalar_type(saved.dtype);
  const bool in_place = local.is_cpu() && local.is_contiguous() && local.scalar_type() == dtype;
  const bool has_direct_blocks = direct_.has(number_of(source));
  check<UsageError>(in_place || !has_direct_blocks,
                    "load: the memory of '{}' changed between two walks", source.shown);
  if (in_place) {
    if (source.in_place)
      fill_in_place(source, local);
    else
      copy(saved, copies, local);
    if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
    return;
  }
  for_each_slab(local, dtype, c10::elementSize(dtype), [&](int64_t begin, at::Tensor& staged) {
    if (staged.numel() == slice.numel()) return copy(saved, copies, staged);
    copy(saved, plan_load(saved, part_of(slice, begin, staged.numel())), staged);
  });
}

at::Tensor Filler::host_slab(size_t which, int64_t count, at::ScalarType dtype) {
  LargePages& slab = slabs_.at(which);
  if (!slab) slab = LargePages(static_cast<size_t>(kSlab));
  return at::from_blob(slab.data(), {count}, dtype);
}

template <class Body>
void Filler::for_each_slab(const at::Tensor& local, at::ScalarType dtype, size_t each,
                           const Body& body) {
  const bool in_stream_order = is_asynchronous(local.device()) && local.scalar_type() == dtype;
  const int64_t most = kSlab / static_cast<int64_t>(each);
  for (int64_t begin = 0; begin < local.numel(); begin += most) {
    const int64_t n = std::min(most, local.numel() - begin);
    at::Tensor staged =
        in_stream_order ? host_buffer({n}, dtype, local.device()) : host_slab(0, n, dtype);
    body(begin, staged);
    put(local, begin, staged, in_stream_order);
    if (!in_stream_order) continue;
    // What is under way has memory of its own.
    if ((under_way_ += n * static_cast<int64_t>(staged.element_size())) < kUnderWay) continue;
    DeviceStream::current(local.device()).synchronize();
    under_way_ = 0;
  }
}

void Filler::tensor(const Slice& slice, at::Tensor local) {
  const TensorSource& source = next(slice.name, local);
  if (source.saved) fill(slice, source, std::move(local));
}

void Filler::rank_tensor(const std::string& name, int rank, int ranks, RankStateRule,
                         at::Tensor local) {
  const TensorSource& source = next(name, local);
  if (!source.saved || source.rule == RankStateRule::begin_anew) return;
  const auto row_of = [&](int64_t old_rank) {
    return Slice::range(name, source.saved->shape(), old_rank * source.numel, source.numel);
  };
  if (!source.rule) return fill(row_of(rank), source, std::move(local));
  const at::ScalarType saved = safetensors_scalar_type(source.saved->dtype);
  const size_t each = std::max(c10::elementSize(saved), c10::elementSize(local.scalar_type()));
  for_each_slab(local, local.scalar_type(), each, [&](int64_t begin, at::Tensor& sum) {
    sum.zero_();
    at::Tensor row = host_slab(1, sum.numel(), saved);
    for (int64_t old = 0; old < source.old_ranks; ++old) {
      if (!source.combines(old, rank, ranks)) continue;
      copy(*source.saved, plan_load(*source.saved, part_of(row_of(old), begin, row.numel())), row);
      sum.add_(row);
    }
    if (source.rule == RankStateRule::average) sum.div_(static_cast<double>(source.old_ranks));
  });
}

}  // namespace trireme
