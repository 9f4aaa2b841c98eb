// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/param_unit.h"

#include <algorithm>

#include "trireme/base/trace.h"

namespace trireme {

ParamUnit::ParamUnit(std::string name, std::vector<std::unique_ptr<FlatParameters>> flats,
                     Group shards, GatherBufferPool& gather_buffers)
    : name_(std::move(name)), shards_(std::move(shards)), gather_buffers_(gather_buffers) {
  for (auto& flat : flats) {
    flat->point_at_nothing();
    parts_.push_back({std::move(flat), {}, {}});
  }
}

ParamUnit::~ParamUnit() {
  for (Part& part : parts_) part.flat->point_at_nothing();
}

std::vector<FlatParameters*> ParamUnit::flats() const {
  std::vector<FlatParameters*> list;
  for (const Part& part : parts_) list.push_back(part.flat.get());
  return list;
}

int64_t ParamUnit::elements() const {
  int64_t total = 0;
  for (const Part& part : parts_) total += part.flat->plan().flat_elements();
  return total;
}

void ParamUnit::read_ahead() {
  if (state_ != State::sharded) return;
  for (Part& part : parts_) part.flat->read_ahead();
}

void ParamUnit::gather() {
  if (state_ != State::sharded) return;
  for (Part& part : parts_) {
    FlatParameters& flat = *part.flat;
    part.gather_buffer = gather_buffers_.take(flat.plan().flat_elements(), flat.options());
    at::Tensor own = flat.shard();
    if (flat.in_file()) {  // straight into this rank's place
      own = part.gather_buffer.narrow(0, flat.plan().shard * shards_.rank(), flat.plan().shard);
      flat.copy_shard_to(own);
    }
    part.work = shards_.all_gather_into_tensor(part.gather_buffer, own);
  }
  state_ = State::gathering;
}

void ParamUnit::make_whole() {
  gather();
  if (state_ != State::gathering) return;
  Span span("exposed_comm", "wait for parameters");
  for (Part& part : parts_) {
    part.work.wait();
    part.work = Work();
    part.flat->point_into(part.gather_buffer);
  }
  state_ = State::whole;
}

void ParamUnit::hold_for_backward() {
  if (state_ == State::whole) state_ = State::whole_in_recompute;
}

bool ParamUnit::replaced() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.flat->replaced(); });
}

void ParamUnit::take_replaced() {
  reshard();
  for (Part& part : parts_) {
    part.flat->take_replaced();
    part.flat->return_to_nothing();
  }
}

void ParamUnit::reshard() {
  if (state_ == State::sharded) return;
  for (Part& part : parts_) {
    part.work.wait();
    part.work = Work();
    part.flat->point_at_nothing();
    gather_buffers_.give_back(part.gather_buffer);
    part.gather_buffer = at::Tensor();
  }
  state_ = State::sharded;
}

}  // namespace trireme
