// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/context_parallel/key_block.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/exchange.h"

namespace trireme::detail {

KeyBlock::KeyBlock(const Group& group, std::vector<Part> ranges, const at::Tensor& like,
                   at::ScalarType type)
    : ranges_(std::move(ranges)), batch_(like.size(0)), heads_(like.size(2)), width_(like.size(3)) {
  int64_t size = 0;
  for (const Part& range : ranges_) {
    begins_.push_back(size);
    size += 2 * batch_ * range.length * heads_ * width_;
  }
  memory_ = reachable_empty(group, {size}, at::empty({0}, like.options().dtype(type)));
}

std::optional<size_t> KeyBlock::find(const Part& range) const {
  for (size_t i = 0; i < ranges_.size(); ++i)
    if (ranges_[i] == range) return i;
  return std::nullopt;
}

at::Tensor KeyBlock::at(size_t i) const {
  const int64_t length = ranges_[i].length;
  return memory_.narrow(0, begins_[i], 2 * batch_ * length * heads_ * width_)
      .view({2, batch_, length, heads_, width_});
}

void KeyBlock::fill(const at::Tensor& keys, const at::Tensor& values) {
  int64_t place = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const int64_t length = ranges_[i].length;
    this->keys(i).copy_(keys.narrow(1, place, length));
    this->values(i).copy_(values.narrow(1, place, length));
    place += length;
  }
}

KeyBlock KeyBlock::computed() const {
  KeyBlock block = *this;
  block.memory_ = detail::computed(memory_);
  return block;
}

KeyBlock KeyBlock::only(const Group& group, const std::vector<Part>& ranges) const {
  if (ranges == ranges_) return *this;
  KeyBlock block(group, ranges, at(0)[0], memory_.scalar_type());
  for (size_t i = 0; i < ranges.size(); ++i) block.at(i).copy_(at(find(ranges[i]).value()));
  return block;
}

OwnQueries::OwnQueries(const RingPlan& plan, int64_t rank, at::Tensor q, at::Tensor starts)
    : plan_(plan),
      rank_(rank),
      q_(std::move(q)),
      starts_(std::move(starts)),
      first_(plan.places(rank).size(), true) {}

void OwnQueries::saw(at::Tensor out, at::Tensor log_sums) {
  out_ = std::move(out);
  log_sums_ = std::move(log_sums);
}

int64_t OwnQueries::offset(const Part& range) const {
  int64_t place = 0;
  for (const Part& own : plan_.places(rank_)) {
    if (own == range) break;
    place += own.length;
  }
  return place;
}

AttentionMask OwnQueries::mask(const VisibleBlock& b) const {
  AttentionMask m{b.queries.begin, b.keys.begin, {}};
  if (starts_.defined()) m.starts = starts_.narrow(1, offset(b.queries), b.queries.length);
  return m;
}

std::vector<bool>::reference OwnQueries::first(const Part& range) {
  const auto& own = plan_.places(rank_);
  size_t i = 0;
  while (own[i] != range) ++i;
  return first_[i];
}

void OwnQueries::attend(int64_t source, const KeyBlock& block) {
  if (!out_.defined()) {
    out_ = at::empty(q_.sizes(), q_.options().memory_format(at::MemoryFormat::Contiguous));
    log_sums_ = at::empty({q_.size(0), q_.size(2), q_.size(1)}, q_.options());
  }
  for (const VisibleBlock& b : plan_.blocks(rank_, source)) {
    const auto cut = [&](const at::Tensor& t, int64_t dim) {
      return t.narrow(dim, offset(b.queries), b.queries.length);
    };
    const size_t i = block.find(b.keys).value();
    auto nothing_yet = first(b.queries);
    attend_block(cut(q_, 1), block.keys(i), block.values(i), mask(b), cut(out_, 1),
                 cut(log_sums_, 2), nothing_yet);
    nothing_yet = false;
  }
}

void OwnQueries::attend_backward(int64_t source, const KeyBlock& block, const at::Tensor& dout,
                                 KeyBlock& to, std::vector<bool>& fresh) {
  if (!dq_.defined())
    dq_ = at::empty(q_.sizes(), q_.options().memory_format(at::MemoryFormat::Contiguous));
  for (const VisibleBlock& b : plan_.blocks(rank_, source)) {
    const auto cut = [&](const at::Tensor& t, int64_t dim) {
      return t.narrow(dim, offset(b.queries), b.queries.length);
    };
    const size_t i = block.find(b.keys).value(), into = to.find(b.keys).value();
    auto nothing_yet = first(b.queries);
    attend_block_backward(
        cut(q_, 1), block.keys(i), block.values(i), mask(b), cut(out_, 1), cut(dout, 1),
        cut(log_sums_, 2),
        {cut(dq_, 1), to.keys(into), to.values(into), !nothing_yet, !fresh[into]});
    nothing_yet = false;
    fresh[into] = false;
  }
}

KeyBlock own_block(const Group& group, const RingPlan& plan, int64_t rank, const at::Tensor& k,
                   const at::Tensor& v) {
  KeyBlock block(group, plan.places(rank), k, k.scalar_type());
  block.fill(k, v);
  return block;
}

namespace {

at::Tensor side_by_side(const KeyBlock& block, int64_t which) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < block.ranges().size(); ++i) parts.push_back(block.at(i)[which]);
  return at::cat(parts, 1);
}

}  // namespace

at::Tensor keys_of(const KeyBlock& block) { return side_by_side(block, 0); }
at::Tensor values_of(const KeyBlock& block) { return side_by_side(block, 1); }

}  // namespace trireme::detail
