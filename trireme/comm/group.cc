// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/group.h"

#include <ATen/ops/empty.h>

#include <deque>
#include <exception>
#include <mutex>

#include "trireme/comm/group_check.h"

// The collectives of one tensor each. Lists: group_lists.cc; pairs: group_p2p.cc; groups of groups:
// group_split.cc.
namespace trireme {

using detail::check_reduction;
using detail::check_root;
using detail::check_tensor;
using detail::copy_back;
using detail::Dense;

namespace detail {

// Error texts are built only when there is an error: a small call takes 0.1 us.
void refuse_tensor(const Backend& b, const at::Tensor& t, const char* what) {
  check<UsageError>(t.defined(), "{}: undefined tensor", what);
  check<UsageError>(t.layout() == at::kStrided, "{}: the tensor is sparse; make it dense first",
                    what);
  fail<UsageError>("{}: the {} backend does not take {} on {}", what, b.name(),
                   c10::toString(t.scalar_type()), c10::DeviceTypeName(t.device().type(), true));
}

void refuse_reduction(const Backend& b, Reduction r, const at::Tensor& t, const char* what) {
  check<UsageError>(
      b.supports(r.op, t.scalar_type()), "{}: the {} backend has no {} of {}{}", what, b.name(),
      name_of(r.op), c10::toString(t.scalar_type()),
      r.op == ReduceOp::avg          ? ": it would round; use sum and divide, or a floating type"
      : t.scalar_type() == at::kBool ? "; use bor or band to test whether any or all are true"
                                     : "");
  fail<UsageError>("{}: premul_sum of {} would round; use a floating type", what,
                   c10::toString(t.scalar_type()));
}

void refuse_root(const Backend& b, int root, const char* what) {
  fail<UsageError>("{}: root {} is not in a group of {}", what, root, b.size());
}

}  // namespace detail

struct Work::Compound {
  std::vector<Work> parts;
  std::function<void()> rest;
  std::exception_ptr error;
  bool done = false;

  void finish() {
    if (error) std::rethrow_exception(error);
    if (!done && rest) try {
        rest();
      } catch (...) {
        error = std::current_exception();
        throw;
      }
    done = true;
  }
};

Work::Work(std::vector<Work> parts)
    : compound_(std::make_shared<Compound>(Compound{std::move(parts), {}, {}})) {}
Work::Work(std::function<void()> rest)
    : compound_(std::make_shared<Compound>(Compound{{}, std::move(rest), {}})) {}

void Work::wait() {
  if (backend_) backend_->check_process();
  if (compound_) {
    for (Work& part : compound_->parts) part.wait();
    compound_->finish();
  }
  if (backend_ && token_.kind) backend_->wait(token_, backend_->timeout());
}
void Work::wait(Duration timeout) {
  if (backend_) backend_->check_process();
  const Deadline deadline = Deadline::after(timeout);
  if (compound_) {
    for (Work& part : compound_->parts) part.wait(deadline.remaining());
    compound_->finish();
  }
  if (backend_ && token_.kind) backend_->wait(token_, timeout);
}
bool Work::is_completed() {
  if (backend_) backend_->check_process();
  if (compound_) {
    for (Work& part : compound_->parts)
      if (!part.is_completed()) return false;
    if (compound_->rest && !compound_->done) return false;
  }
  return !backend_ || !token_.kind || backend_->completed_with_progress(token_);
}
int Work::source() {
  if (token_.kind == 0 && token_.peer >= 0) return token_.peer;
  check<UsageError>(backend_ != nullptr, "source() was called on a call that is not a recv");
  return backend_->source(token_);
}

namespace {

/// In a forked child the parent's backend is not destroyed: that would notify peers, through the
/// parent's connections, that the rank left, and wait for threads that the child does not have.
class OfThisProcess {
 public:
  explicit OfThisProcess(std::shared_ptr<detail::Backend> backend) : backend_(std::move(backend)) {}
  ~OfThisProcess() {
    if (made_in_.is_here()) return;
    static std::mutex mutex;
    static auto* const left_alone = new std::deque<std::shared_ptr<detail::Backend>>;
    std::lock_guard lock(mutex);
    left_alone->push_back(std::move(backend_));
  }
  OfThisProcess(const OfThisProcess&) = delete;

 private:
  std::shared_ptr<detail::Backend> backend_;
  const ProcessMark made_in_;
};

}  // namespace

Group::Group(std::shared_ptr<detail::Backend> backend) {
  if (!backend) return;
  detail::Backend* const b = backend.get();
  backend_ = {std::make_shared<OfThisProcess>(std::move(backend)), b};
}

detail::Backend& Group::facts() const {
  check<UsageError>(backend_ != nullptr, "no group: call init_process_group() first");
  return *backend_;
}
detail::Backend& Group::checked() const {
  detail::Backend& b = facts();
  b.check_process();
  return b;
}

Work Group::work(detail::Token token) const { return token.kind ? Work(backend_, token) : Work(); }

int Group::rank() const { return facts().rank(); }
int Group::size() const { return facts().size(); }
const std::string& Group::backend() const { return facts().name(); }
Duration Group::timeout() const { return facts().timeout(); }
bool Group::supports(Collective op, at::ScalarType dtype, at::DeviceType device) const {
  return facts().supports(op, dtype, device);
}
bool Group::wait_orders_streams(at::DeviceType device) const {
  return facts().wait_orders_streams(device);
}
bool Group::supports(ReduceOp op, at::ScalarType dtype) const {
  return facts().supports(op, dtype);
}
at::Tensor Group::empty(at::IntArrayRef sizes, at::TensorOptions options) const {
  return checked().empty(sizes, options);
}
at::Tensor Group::shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) const {
  check_root(checked(), owner, "shared");
  return checked().shared(sizes, options, owner);
}
at::Tensor detail::Backend::shared(at::IntArrayRef, at::TensorOptions, int) {
  fail<UsageError>(
      "the {} backend has no memory shared by all ranks: only the local backend has it, for ranks "
      "of one host",
      name());
}
int64_t Group::shared_bytes() const { return checked().shared_bytes(); }
void Group::progress() {
  auto& b = checked();
  b.progress();
  if (b.progress_group()) b.progress_group()->progress_others();
}
void Group::abort(const std::string& why) {
  if (facts().is_of_this_process()) facts().abort(why);
}

Work Group::all_reduce(const at::Tensor& t, Reduction op, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_reduce, t, "all_reduce");
  check_reduction(b, op, t, "all_reduce");
  if (op.factor != 1) {
    at::NoGradGuard no_grad;
    t.mul_(op.factor);
  }
  Dense dense(t);
  auto token = b.post({.op = Collective::all_reduce,
                       .reduction = op.op,
                       .input = &dense.tensor,
                       .output = &dense.tensor,
                       .site = site});
  if (dense.copied) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::broadcast(const at::Tensor& t, int root, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::broadcast, t, "broadcast");
  check_root(b, root, "broadcast");
  Dense dense(t);
  auto token = b.post({.op = Collective::broadcast,
                       .root = root,
                       .input = &dense.tensor,
                       .output = &dense.tensor,
                       .site = site});
  if (dense.copied && rank() != root) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::reduce(const at::Tensor& t, int root, Reduction op, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::reduce, t, "reduce");
  check_reduction(b, op, t, "reduce");
  check_root(b, root, "reduce");
  // The tensors of other ranks must not change, so they send a scaled copy.
  at::Tensor scaled = t;
  if (op.factor != 1) {
    at::NoGradGuard no_grad;
    if (rank() == root)
      t.mul_(op.factor);
    else
      scaled = t.mul(op.factor);
  }
  Dense dense(scaled);
  auto token = b.post({.op = Collective::reduce,
                       .reduction = op.op,
                       .root = root,
                       .input = &dense.tensor,
                       .output = &dense.tensor,
                       .site = site});
  if (dense.copied && rank() == root) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                   CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_gather, input, "all_gather_into_tensor");
  check_tensor(b, Collective::all_gather, output, "all_gather_into_tensor");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "all_gather_into_tensor: output is {}, input is {}",
                    c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  check<UsageError>(
      output.numel() == input.numel() * size(),
      "all_gather_into_tensor: output has {} elements; {} ranks × {} of the input are {}",
      output.numel(), size(), input.numel(), input.numel() * size());
  Dense dense(input), dense_out(output);
  auto token = b.post({.op = Collective::all_gather,
                       .input = &dense.tensor,
                       .output = &dense_out.tensor,
                       .site = site});
  if (dense_out.copied) copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

Work Group::reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, Reduction op,
                                  CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::reduce_scatter, input, "reduce_scatter_tensor");
  check_tensor(b, Collective::reduce_scatter, output, "reduce_scatter_tensor");
  check_reduction(b, op, input, "reduce_scatter_tensor");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "reduce_scatter_tensor: output is {}, input is {}",
                    c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  check<UsageError>(
      input.numel() == output.numel() * size(),
      "reduce_scatter_tensor: input has {} elements; {} ranks × {} of the output are {}",
      input.numel(), size(), output.numel(), output.numel() * size());
  at::NoGradGuard no_grad;
  const at::Tensor scaled = op.factor == 1 ? input : input.mul(op.factor);
  Dense dense(scaled), dense_out(output);
  auto token = b.post({.op = Collective::reduce_scatter,
                       .reduction = op.op,
                       .input = &dense.tensor,
                       .output = &dense_out.tensor,
                       .site = site});
  if (dense_out.copied) copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

Work Group::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                              std::vector<int64_t> output_splits, std::vector<int64_t> input_splits,
                              CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_to_all, input, "all_to_all_single");
  check_tensor(b, Collective::all_to_all, output, "all_to_all_single");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "all_to_all_single: output is {}, input is {}",
                    c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  // Converts rows to elements.
  auto counts = [&](const at::Tensor& t, const std::vector<int64_t>& splits, const char* which) {
    const int64_t rows = t.dim() ? t.size(0) : 1, row = rows ? t.numel() / rows : 0;
    std::vector<int64_t> out;
    if (splits.empty()) {
      check<UsageError>(
          rows % size() == 0,
          "all_to_all_single: the {} rows of {} are not divisible by {} ranks; give {}_splits",
          rows, which, size(), which);
      return std::vector<int64_t>(static_cast<size_t>(size()), rows / size() * row);
    }
    check<UsageError>(static_cast<int>(splits.size()) == size(),
                      "all_to_all_single: {} {}_splits for {} ranks", splits.size(), which, size());
    int64_t sum = 0;
    for (int64_t s : splits) {
      check<UsageError>(s >= 0, "all_to_all_single: a negative {} split, {}", which, s);
      sum += s;
      out.push_back(s * row);
    }
    check<UsageError>(sum == rows, "all_to_all_single: {}_splits add up to {}, {} has {} rows",
                      which, sum, which, rows);
    return out;
  };
  const auto out_counts = counts(output, output_splits, "output"),
             in_counts = counts(input, input_splits, "input");
  Dense dense(input), dense_out(output);
  auto token = b.post({.op = Collective::all_to_all,
                       .input = &dense.tensor,
                       .output = &dense_out.tensor,
                       .input_counts = &in_counts,
                       .output_counts = &out_counts,
                       .site = site});
  if (dense_out.copied) copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

void Group::barrier(CallSite site) {
  auto& b = checked();
  b.wait(b.post({.op = Collective::barrier, .site = site}), b.timeout());
}

}  // namespace trireme
