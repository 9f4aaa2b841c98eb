// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/gradient_scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/finite.h"

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
      not_finite_(record_.add([this] { return first_bad_; })),
      pool_(group_) {
  for (size_t l = 0; l < flats_.size(); ++l) {
    lines_.emplace_back().first = slots_.size();
    for (size_t m = 0; m < flats_[l]->members().size(); ++m)
      slots_.push_back({.line = l, .member = m, .finite = {}});
    if (options_.keep_gather_buffers) {
      take_gather_buffer(l);
    } else {
      lines_[l].home = group_.empty({flats_[l]->plan().shard}, flats_[l]->options());
      lines_[l].home.zero_();  // padding is read by nobody, and need not be a NaN
    }
  }
  if (options_.tree) tree_.emplace(lines_.size());
}

GradientScatter::~GradientScatter() = default;

const at::Tensor& GradientScatter::parameter(size_t i) const {
  return flats_[slots_[i].line]->members()[slots_[i].member].second;
}
const std::string& GradientScatter::name(size_t i) const {
  return flats_[slots_[i].line]->members()[slots_[i].member].first;
}

at::ScalarType GradientScatter::wire_of(size_t line) const {
  return options_.wire.value_or(flats_[line]->dtype());
}

void GradientScatter::expect(int contributions) {
  check<UsageError>(contributions > 0, "a round with {} contributions", contributions);
  expected_ = contributions;
}

void GradientScatter::begin_step(int rounds) {
  check<UsageError>(rounds > 0, "a step of {} rounds of gradients", rounds);
  rounds_ = rounds;
  round_ = 0;
}

void GradientScatter::open() {
  check<UsageError>(
      !open_, "a round of gradients is open already: close() it, or reset() after an exception");
  open_ = true;
  told_ = false;
  next_ = 0;
  if (round_ == rounds_) round_ = 0;
  if (round_++ == 0) {
    first_bad_ = 0;
    for (Slot& s : slots_) s.used = false;
    for (Line& line : lines_) line.filled = false;
    if (tree_) tree_->open(rounds_);
  }
  if (tree_) tree_->begin_leaf(round_ - 1);
  for (Slot& s : slots_) {
    s.got = 0;
    s.finite.reset();
  }
  for (size_t l = 0; l < lines_.size(); ++l) prepare(l);
}

// What this rank's part holds already, and whether it is added to.
void GradientScatter::prepare(size_t l) {
  Line& line = lines_[l];
  line.waiting = flats_[l]->members().size();
  line.launched = line.leaves_when_full = false;
  line.touched = std::exchange(line.touched_outside, false) ||
                 options_.leave == ScatterOptions::Leave::when_full;
  if (tree_) return;
  at::NoGradGuard no_grad;
  const auto& shards = flats_[l]->shards();
  line.adds = line.filled || std::any_of(shards.begin(), shards.end(), [](const ParameterShard& s) {
                return s.tensor.grad().defined();
              });
  if (!line.adds) return;
  for (const ParameterShard& s : shards) {
    if (line.filled) break;
    const at::Tensor& grad = s.tensor.grad();
    const at::Tensor place = line.home.narrow(0, s.offset, s.tensor.numel());
    if (!grad.defined())
      place.zero_();
    else if (grad.data_ptr() != place.data_ptr())
      place.copy_(grad.reshape({-1}));
  }
  if (options_.keep_gather_buffers) line.before = line.home.clone();
}

void GradientScatter::take_gather_buffer(size_t l) {
  Line& line = lines_[l];
  const FlatParameters& flat = *flats_[l];
  if (!line.gather_buffer.defined()) {
    while (!options_.keep_gather_buffers && under_way_.size() >= options_.gather_buffers_in_flight)
      settle_oldest();
    const ShardPlan& plan = flat.plan();
    line.gather_buffer = pool_.take(plan.line(), flat.options().dtype(wire_of(l)));
    if (options_.keep_gather_buffers)
      line.home = wire_of(l) == flat.dtype()
                      ? line.gather_buffer.narrow(0, plan.shard * group_.rank(), plan.shard)
                      : group_.empty({plan.shard}, flat.options()).zero_();
  }
  if (!line.places.empty()) return;
  for (size_t m = 0; m < flat.members().size(); ++m)
    line.places.push_back(alias_of(line.gather_buffer, flat.plan().offsets[m], flat.shape(m)));
}

void GradientScatter::refuse(const std::string& what) {
  group_.abort(fmt::format("rank {}: {}", group_.rank(), what));
  throw UsageError(what);
}

void GradientScatter::ready(size_t i) {
  if (!open_) [[unlikely]]
    fail<UsageError>("gradient of '{}' outside a round", name(i));
  Slot& s = slots_[i];
  Line& line = lines_[s.line];
  if (line.launched) [[unlikely]]
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
  take_gather_buffer(s.line);
  at::NoGradGuard no_grad;
  at::Tensor& grad = parameter(i).mutable_grad();
  const at::Tensor& place = line.places[s.member];
  check_gradient(name(i), grad, parameter(i));
  ++s.got;
  const bool last = s.got == expected_;
  if (grad.data_ptr() != place.data_ptr() && (last || place.scalar_type() == grad.scalar_type())) {
    s.finite = copy_all_finite(place, grad);
    grad = last ? at::Tensor() : place;  // what follows accumulates there
  } else if (last) {
    s.finite.reset();
    grad = at::Tensor();
  }
  if (last && --line.waiting == 0) {
    if (options_.leave == ScatterOptions::Leave::when_full)
      leave_full();
    else if (line.leaves_when_full)
      leave(s.line);
  }
  group_.progress();
}

void GradientScatter::touch(size_t line) {
  (open_ ? lines_[line].touched : lines_[line].touched_outside) = true;
}

void GradientScatter::launch(size_t line) {
  if (!lines_[line].launched) leave(line);
}

void GradientScatter::launch_when_full(size_t line) {
  lines_[line].leaves_when_full = true;
  if (full(line)) launch(line);
}

void GradientScatter::leave_full() {
  while (next_ < lines_.size() && lines_[next_].waiting == 0) leave(next_++);
  if (next_ == lines_.size()) send_record();
}

void GradientScatter::send_record() {
  if (told_ || round_ < rounds_) return;
  told_ = true;
  std::vector<bool> used;
  for (const Slot& s : slots_) used.push_back(s.used);
  record_.send(used);
}

// Without a complete gradient in this round: what came, what accumulated without a round (no_sync),
// or zeros.
void GradientScatter::fill(size_t i) {
  Slot& s = slots_[i];
  const at::Tensor& place = lines_[s.line].places[s.member];
  at::Tensor& grad = parameter(i).mutable_grad();
  if (s.got < expected_) {
    if (grad.defined() && grad.data_ptr() != place.data_ptr()) {
      s.finite = copy_all_finite(place, grad);
      s.got = expected_;
    } else if (s.got == 0) {
      place.zero_();
      s.finite = true;
    }
    grad = at::Tensor();
  }
  s.used = s.used || s.got > 0;
  if (first_bad_ == 0 && !(s.finite ? *s.finite : all_finite(place)))
    first_bad_ = static_cast<double>(i + 1);
}

void GradientScatter::leave(size_t l) {
  Line& line = lines_[l];
  at::NoGradGuard no_grad;
  take_gather_buffer(l);
  for (size_t m = 0; m < line.places.size(); ++m) fill(line.first + m);
  line.launched = true;
  const ShardPlan& plan = flats_[l]->plan();
  const bool straight =
      wire_of(l) == flats_[l]->dtype() && !options_.keep_gather_buffers && !line.adds;
  if (tree_)
    line.out = at::empty({plan.shard}, flats_[l]->options().dtype(wire_of(l)));
  else
    line.out =
        straight ? line.home : line.gather_buffer.narrow(0, plan.shard * group_.rank(), plan.shard);
  line.work = group_.reduce_scatter_tensor(line.out, line.gather_buffer, options_.op);
  ++stats_.launches;
  stats_.bytes += static_cast<int64_t>(line.gather_buffer.nbytes());
  under_way_.push_back(l);
}

// Its sum over the shard group is there; now over the replicas.
void GradientScatter::scattered(size_t l) {
  Line& line = lines_[l];
  line.work.wait();
  line.work = Work();
  if (options_.replicas && options_.replicas.size() > 1)
    line.work = options_.replicas.all_reduce(line.out, options_.op);
}

void GradientScatter::settle(size_t l) {
  Line& line = lines_[l];
  line.work.wait();
  line.work = Work();
  at::NoGradGuard no_grad;
  if (tree_) {
    tree_->add(l, line.out.to(line.home.scalar_type()), line.home);
  } else if (line.before.defined()) {
    if (line.out.data_ptr() != line.home.data_ptr()) line.home.copy_(line.out);
    line.home.add_(line.before);
  } else if (line.out.data_ptr() != line.home.data_ptr()) {
    line.adds ? line.home.add_(line.out) : line.home.copy_(line.out);
  }
  line.before = line.out = at::Tensor();
  line.filled = true;
  if (options_.keep_gather_buffers) return;
  pool_.give_back(line.gather_buffer);
  line.gather_buffer = at::Tensor();
  line.places.clear();
}

void GradientScatter::settle_oldest() {
  const size_t l = under_way_.front();
  under_way_.pop_front();
  scattered(l);
  settle(l);
}

void GradientScatter::close() {
  check<UsageError>(open_, "close() without open()");
  for (size_t l = 0; l < lines_.size(); ++l)
    if (lines_[l].touched && !lines_[l].launched) leave(l);
  send_record();
  {
    Span span("exposed_comm", "wait for gradients");
    for (size_t l : under_way_) scattered(l);
    for (size_t l : under_way_) settle(l);
    under_way_.clear();
    if (tree_ && round_ == rounds_)
      for (size_t l = 0; l < lines_.size(); ++l) tree_->finish(l, lines_[l].home);
    if (told_) record_.read();
  }
  if (told_) bind_shards();
  open_ = false;
  ++stats_.rounds;
}

void GradientScatter::bind_shards() {
  for (size_t l = 0; l < lines_.size(); ++l)
    for (const ParameterShard& s : flats_[l]->shards())
      if (record_.used_by(lines_[l].first + s.member) > 0)
        s.tensor.mutable_grad() = alias_of(lines_[l].home, s.offset, s.tensor.sizes());
}

void GradientScatter::reset() {
  for (size_t l : under_way_) lines_[l].work.wait();
  under_way_.clear();
  for (Line& line : lines_) {
    line.work = Work();
    line.out = line.before = at::Tensor();
    line.touched_outside = false;
    if (options_.keep_gather_buffers || !line.gather_buffer.defined()) continue;
    pool_.give_back(line.gather_buffer);
    line.gather_buffer = at::Tensor();
    line.places.clear();
  }
  open_ = false;
  round_ = 0;
}

GradientScatter::Found GradientScatter::not_finite() const {
  const auto all = record_.of(not_finite_);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] != 0) return {static_cast<int>(r), static_cast<size_t>(all[r]) - 1};
  return {};
}

GradientScatter::Stats GradientScatter::stats() const {
  Stats s = stats_;
  s.gather_buffer_bytes = pool_.bytes();
  for (const Line& line : lines_)
    if (!options_.keep_gather_buffers && line.home.defined())
      s.shard_bytes += static_cast<int64_t>(line.home.nbytes());
  return s;
}

}  // namespace trireme
