// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/staged_call.h"

#include <utility>

namespace trireme::detail {
namespace {

// Whether the inner call reads this rank's input, and writes its output.
bool reads(const Call& call, int rank) {
  switch (call.op) {
    case Collective::broadcast:
    case Collective::scatter:
      return rank == call.root;
    case Collective::recv:
    case Collective::barrier:
      return false;
    default:
      return true;
  }
}
bool writes(const Call& call, int rank) {
  switch (call.op) {
    case Collective::broadcast:
      return rank != call.root;
    case Collective::reduce:
    case Collective::gather:
      return rank == call.root;
    case Collective::send:
    case Collective::barrier:
      return false;
    default:
      return true;
  }
}

// The same memory, without the version counter: NCCL's writes do not count either, nor those of the
// CPU's backends.
at::Tensor same_memory(const at::Tensor* t) {
  return t && t->defined() ? t->variable_data() : at::Tensor();
}

}  // namespace

StagedCall::StagedCall(uint64_t number, const Call& call, int rank, CopyStreams* streams,
                       HostPool& pool)
    : number(number),
      call_(call),
      streams_(streams),
      pool_(pool),
      issued_on_(streams ? DeviceStream::current(streams->device)
                         : DeviceStream::current(at::kCPU)),
      input_(same_memory(call.input)),
      output_(call.output == call.input ? input_ : same_memory(call.output)) {
  const bool in_place = call.input == call.output;
  if (call.input_counts) call_.input_counts = &(input_counts_ = *call.input_counts);
  if (call.output_counts) call_.output_counts = &(output_counts_ = *call.output_counts);
  input_here_ = input_;
  output_here_ = output_;
  if (streams_) {
    returns_ = output_.defined() && writes(call, rank);
    issued_ = issued_on_.record();
    input_here_ = to_host(input_, reads(call, rank));
    output_here_ = in_place ? input_here_ : to_host(output_, false);
  }
  if (call.input) call_.input = &input_here_;
  if (call.output) call_.output = in_place ? &input_here_ : &output_here_;
}

StagedCall::~StagedCall() {
  if (!streams_) return;
  // Whoever gets the tensors' memory next comes behind the copies. (They may be aliases of it, of
  // which the device's allocator knows nothing.)
  for (const DeviceEvent* event : {&here_, &back_})
    if (!event->reached()) issued_on_.wait(*event);
  // Given up before it was complete, perhaps while a peer uses the memory: it goes to nobody else.
  if (state != State::back) return;
  if (input_here_.defined() && !input_here_.is_same(output_here_)) pool_.give(input_here_, here_);
  if (output_here_.defined()) pool_.give(output_here_, back_);
}

at::Tensor StagedCall::to_host(const at::Tensor& t, bool copied) {
  if (!t.defined()) return {};
  at::Tensor here = pool_.take(t);
  if (!copied || t.numel() == 0) return here;
  streams_->out.wait(issued_);
  const StreamScope scope(streams_->out);
  copy_in_stream_order(here, t.view(-1));
  here_ = streams_->out.record();
  return here;
}

void StagedCall::copy_back() {
  state = State::back;
  if (!returns_ || output_.numel() == 0) return;
  // A result may come before the stream has read what it replaces.
  streams_->in.wait(issued_);
  const StreamScope scope(streams_->in);
  copy_in_stream_order(output_.view(-1), output_here_);
  back_ = streams_->in.record();
}

void StagedCall::order_current_stream() {
  if (!streams_) return;
  const DeviceStream now = DeviceStream::current(streams_->device);
  now.wait(back_);
  if (!done) return;
  std::exchange(done, {})();
  // The memory of the host is free when the copy is done, which is before this.
  back_ = now.record();
}

}  // namespace trireme::detail
