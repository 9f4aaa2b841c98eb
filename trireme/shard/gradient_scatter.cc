// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/gradient_scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

size_t parameters_of(const std::vector<FlatParameters*>& flats) {
  size_t n = 0;
  for (const FlatParameters* f : flats) n += f->members().size();
  return n;
}

at::Device device_of(const std::vector<FlatParameters*>& flats) {
  return flats.empty() ? at::Device(at::kCPU) : flats[0]->options().device();
}

}  // namespace

GradientScatter::GradientScatter(std::vector<FlatParameters*> flats, Group group,
                                 ScatterOptions options)
    : flats_(std::move(flats)),
      group_(std::move(group)),
      options_(std::move(options)),
      record_(options_.world ? options_.world : group_, parameters_of(flats_), device_of(flats_)),
      not_finite_(record_.add([this] { return first_bad_.first(); })),
      pool_(group_) {
  for (size_t l = 0; l < flats_.size(); ++l) {
    buffers_.emplace_back().first = slots_.size();
    for (size_t m = 0; m < flats_[l]->members().size(); ++m)
      slots_.push_back({.buffer = l, .member = m, .finite = {}});
    if (options_.keep_gather_buffers) {
      take_gather_buffer(l);
    } else {
      buffers_[l].home = group_.empty({flats_[l]->plan().shard}, flats_[l]->options());
      buffers_[l].home.zero_();  // padding is read by nobody, and need not be a NaN
    }
  }
  if (options_.tree) tree_.emplace(buffers_.size());
}

GradientScatter::~GradientScatter() = default;

const at::Tensor& GradientScatter::parameter(size_t i) const {
  return flats_[slots_[i].buffer]->members()[slots_[i].member].second;
}
const std::string& GradientScatter::name(size_t i) const {
  return flats_[slots_[i].buffer]->members()[slots_[i].member].first;
}

at::ScalarType GradientScatter::wire_of(size_t buffer) const {
  return options_.wire.value_or(flats_[buffer]->dtype());
}

void GradientScatter::expect(int contributions) {
  check<UsageError>(contributions > 0, "a round with {} contributions", contributions);
  expected_ = contributions;
}

void GradientScatter::begin_step(int leaves, int stages) {
  check<UsageError>(leaves > 0 && stages > 0, "a step of {} rounds of gradients of {} stages",
                    leaves, stages);
  leaves_ = leaves;
  rounds_ = leaves * stages;
  round_ = 0;
}

void GradientScatter::open() { open(0, round_ == rounds_ ? 0 : round_); }

void GradientScatter::open(int stage, int leaf) {
  check<UsageError>(
      !open_, "a round of gradients is open already: close() it, or reset() after an exception");
  open_ = true;
  record_sent_ = false;
  next_ = 0;
  if (round_ == rounds_) round_ = 0;
  if (round_++ == 0) {
    first_bad_.clear();
    for (Slot& s : slots_) s.used = false;
    for (FlatBuffer& buffer : buffers_) buffer.filled = false;
    if (tree_) tree_->open(leaves_);
  }
  if (tree_) tree_->begin_leaf(leaf);
  for (Slot& s : slots_) {
    s.got = 0;
    s.finite.reset();
  }
  for (size_t l = 0; l < buffers_.size(); ++l) {
    if (stage_of(l) == stage) {
      prepare(l);
    } else {  // takes no part
      buffers_[l].waiting = 0;
      buffers_[l].launched = true;
    }
  }
}

// What this rank's part holds already, and whether it is added to.
void GradientScatter::prepare(size_t l) {
  FlatBuffer& buffer = buffers_[l];
  buffer.waiting = flats_[l]->members().size();
  buffer.launched = buffer.leaves_when_full = false;
  buffer.touched = std::exchange(buffer.touched_outside, false) ||
                   options_.leave == ScatterOptions::Leave::when_full;
  if (tree_) return;
  at::NoGradGuard no_grad;
  const auto& shards = flats_[l]->shards();
  buffer.adds = buffer.filled ||
                std::any_of(shards.begin(), shards.end(),
                            [](const ParameterShard& s) { return s.tensor.grad().defined(); });
  if (!buffer.adds) return;
  for (const ParameterShard& s : shards) {
    if (buffer.filled) break;
    const at::Tensor& grad = s.tensor.grad();
    const at::Tensor place = buffer.home.narrow(0, s.offset, s.tensor.numel());
    if (!grad.defined())
      place.zero_();
    else if (!same_memory(grad, place))
      place.copy_(grad.reshape({-1}));
  }
  if (options_.keep_gather_buffers) buffer.before = buffer.home.clone();
}

void GradientScatter::keep_few_in_flight() {
  const auto wait_blocks = [&](const Group& group) {
    return group.size() > 1 && !group.wait_orders_streams(device_of(flats_).type());
  };
  const bool takes_more =
      is_asynchronous(device_of(flats_)) &&
      (wait_blocks(group_) || (options_.replicas && wait_blocks(options_.replicas)));
  while (under_way_.size() >= options_.gather_buffers_in_flight) {
    if (takes_more && (options_.replicas || !buffers_[under_way_.front()].work.is_completed()))
      return;
    settle_oldest();
  }
}

void GradientScatter::take_gather_buffer(size_t l) {
  FlatBuffer& buffer = buffers_[l];
  const FlatParameters& flat = *flats_[l];
  if (!buffer.gather_buffer.defined()) {
    if (!options_.keep_gather_buffers) keep_few_in_flight();
    const ShardPlan& plan = flat.plan();
    buffer.gather_buffer = pool_.take(plan.flat_elements(), flat.options().dtype(wire_of(l)));
    if (options_.keep_gather_buffers)
      buffer.home = wire_of(l) == flat.dtype()
                        ? buffer.gather_buffer.narrow(0, plan.shard * group_.rank(), plan.shard)
                        : group_.empty({plan.shard}, flat.options()).zero_();
  }
  if (!buffer.places.empty()) return;
  for (size_t m = 0; m < flat.members().size(); ++m)
    buffer.places.push_back(alias_of(buffer.gather_buffer, flat.plan().offsets[m], flat.shape(m)));
}

void GradientScatter::refuse(const std::string& what) {
  const int rank = group_.world_ranks()[static_cast<size_t>(group_.rank())];
  group_.abort(fmt::format("rank {}: {}", rank, what));
  throw UsageError(what);
}

void GradientScatter::ready(size_t i) {
  if (!open_) [[unlikely]]
    fail<UsageError>("gradient of '{}' outside a round", name(i));
  Slot& s = slots_[i];
  FlatBuffer& buffer = buffers_[s.buffer];
  if (buffer.launched) [[unlikely]]
    refuse(
        fmt::format("parameter '{}' got a gradient after the gradients around it were reduced: "
                    "it is used outside of its unit's forward, or two backwards ran in one "
                    "round",
                    name(i)));
  if (s.got >= expected_) [[unlikely]]
    refuse(
        fmt::format("parameter '{}' got more gradients in this round than the {} expected: two "
                    "backwards in one round",
                    name(i), expected_));
  take_gather_buffer(s.buffer);
  at::NoGradGuard no_grad;
  at::Tensor& grad = parameter(i).mutable_grad();
  const at::Tensor& place = buffer.places[s.member];
  check_gradient(name(i), grad, parameter(i));
  ++s.got;
  const bool last = s.got == expected_;
  if (!same_memory(grad, place) && (last || place.scalar_type() == grad.scalar_type())) {
    s.finite = copy_and_look(place, grad);
    grad = last ? at::Tensor() : place;  // what follows accumulates there
  } else if (last) {
    s.finite.reset();
    grad = at::Tensor();
  }
  if (last && --buffer.waiting == 0) {
    if (options_.leave == ScatterOptions::Leave::when_full)
      leave_full();
    else if (buffer.leaves_when_full)
      leave(s.buffer);
  }
  group_.progress();
}

void GradientScatter::touch(size_t buffer) {
  (open_ ? buffers_[buffer].touched : buffers_[buffer].touched_outside) = true;
}

void GradientScatter::launch(size_t buffer) {
  if (!buffers_[buffer].launched) leave(buffer);
}

void GradientScatter::launch_when_full(size_t buffer) {
  buffers_[buffer].leaves_when_full = true;
  if (full(buffer)) launch(buffer);
}

void GradientScatter::leave_full() {
  for (; next_ < buffers_.size() && buffers_[next_].waiting == 0; ++next_)
    if (!buffers_[next_].launched) leave(next_);
  // What the record says of gradients on a device is known when the device has come to it, and a
  // hook does not wait for that: close() sends it.
  if (next_ == buffers_.size() && !is_asynchronous(device_of(flats_))) send_record();
}

void GradientScatter::send_record() {
  if (record_sent_ || round_ < rounds_) return;
  record_sent_ = true;
  std::vector<bool> used;
  for (const Slot& s : slots_) used.push_back(s.used);
  record_.send(used);
}

// Without a complete gradient in this round: what came, what accumulated without a round (no_sync),
// or zeros.
void GradientScatter::fill(size_t i) {
  Slot& s = slots_[i];
  const at::Tensor& place = buffers_[s.buffer].places[s.member];
  at::Tensor& grad = parameter(i).mutable_grad();
  if (s.got < expected_) {
    if (grad.defined() && !same_memory(grad, place)) {
      s.finite = copy_and_look(place, grad);
      s.got = expected_;
    } else if (s.got == 0) {
      place.zero_();
      s.finite = true;
    }
    grad = at::Tensor();
  }
  s.used = s.used || s.got > 0;
  first_bad_.look(i, s.finite, place);
}

void GradientScatter::leave(size_t l) {
  FlatBuffer& buffer = buffers_[l];
  at::NoGradGuard no_grad;
  take_gather_buffer(l);
  for (size_t m = 0; m < buffer.places.size(); ++m) fill(buffer.first + m);
  buffer.launched = true;
  const ShardPlan& plan = flats_[l]->plan();
  const bool straight =
      wire_of(l) == flats_[l]->dtype() && !options_.keep_gather_buffers && !buffer.adds;
  if (tree_)
    buffer.out = at::empty({plan.shard}, flats_[l]->options().dtype(wire_of(l)));
  else
    buffer.out = straight ? buffer.home
                          : buffer.gather_buffer.narrow(0, plan.shard * group_.rank(), plan.shard);
  buffer.work = group_.reduce_scatter_tensor(buffer.out, buffer.gather_buffer, options_.op);
  ++stats_.launches;
  stats_.bytes += static_cast<int64_t>(buffer.gather_buffer.nbytes());
  under_way_.push_back(l);
}

// Its sum over the shard group is there; now over the replicas.
void GradientScatter::scattered(size_t l) {
  FlatBuffer& buffer = buffers_[l];
  buffer.work.wait();
  buffer.work = Work();
  if (options_.replicas && options_.replicas.size() > 1)
    buffer.work = options_.replicas.all_reduce(buffer.out, options_.op);
}

void GradientScatter::settle(size_t l) {
  FlatBuffer& buffer = buffers_[l];
  buffer.work.wait();
  buffer.work = Work();
  at::NoGradGuard no_grad;
  if (tree_) {
    tree_->add(l, buffer.out.to(buffer.home.scalar_type()), buffer.home);
  } else if (buffer.before.defined()) {
    if (!same_memory(buffer.out, buffer.home)) buffer.home.copy_(buffer.out);
    buffer.home.add_(buffer.before);
  } else if (!same_memory(buffer.out, buffer.home)) {
    buffer.adds ? buffer.home.add_(buffer.out) : buffer.home.copy_(buffer.out);
  }
  buffer.before = buffer.out = at::Tensor();
  buffer.filled = true;
  if (options_.keep_gather_buffers) return;
  pool_.give_back(buffer.gather_buffer);
  buffer.gather_buffer = at::Tensor();
  buffer.places.clear();
}

void GradientScatter::settle_oldest() {
  const size_t l = under_way_.front();
  under_way_.pop_front();
  scattered(l);
  settle(l);
}

void GradientScatter::close() {
  check<UsageError>(open_, "close() without open()");
  for (size_t l = 0; l < buffers_.size(); ++l)
    if (buffers_[l].touched && !buffers_[l].launched) leave(l);
  send_record();
  {
    Span span("exposed_comm", "wait for gradients");
    for (size_t l : under_way_) scattered(l);
    for (size_t l : under_way_) settle(l);
    under_way_.clear();
    if (tree_ && round_ == rounds_)
      for (size_t l = 0; l < buffers_.size(); ++l) tree_->finish(l, buffers_[l].home);
    if (record_sent_) record_.read();
  }
  if (record_sent_) bind_shards();
  open_ = false;
  ++stats_.rounds;
}

void GradientScatter::bind_shards() {
  for (size_t l = 0; l < buffers_.size(); ++l)
    for (const ParameterShard& s : flats_[l]->shards())
      if (record_.used_by(buffers_[l].first + s.member) > 0)
        s.tensor.mutable_grad() = alias_of(buffers_[l].home, s.offset, s.tensor.sizes());
}

void GradientScatter::reset() {
  for (size_t l : under_way_) buffers_[l].work.wait();
  under_way_.clear();
  for (FlatBuffer& buffer : buffers_) {
    buffer.work = Work();
    buffer.out = buffer.before = at::Tensor();
    buffer.touched_outside = false;
    if (options_.keep_gather_buffers || !buffer.gather_buffer.defined()) continue;
    pool_.give_back(buffer.gather_buffer);
    buffer.gather_buffer = at::Tensor();
    buffer.places.clear();
  }
  open_ = false;
  round_ = 0;
}

GradientScatter::Found GradientScatter::not_finite() const {
  return first_non_finite(record_, not_finite_);
}

GradientScatter::Stats GradientScatter::stats() const {
  Stats s = stats_;
  s.gather_buffer_bytes = pool_.bytes();
  for (const FlatBuffer& buffer : buffers_)
    if (!options_.keep_gather_buffers && buffer.home.defined())
      s.shard_bytes += static_cast<int64_t>(buffer.home.nbytes());
  return s;
}

}  // namespace trireme
