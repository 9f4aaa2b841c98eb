// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/log.h>
#include <ATen/ops/stack.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/layers/tensor_parallel/kept.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Loss {
  Group group;
  int64_t vocabulary = 0, ignored = 0;
  double smoothing = 0;
  Part part;
  CallSite site;
};

at::ScalarType sums_in(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Rows whose exponentials stay in a core's cache between the operators.
int64_t rows_at_once(const at::Tensor& logits) {
  if (is_asynchronous(logits.device())) return std::max<int64_t>(logits.size(0), 1);
  constexpr int64_t kElements = int64_t{1} << 16;
  return std::max<int64_t>(kElements / std::max<int64_t>(logits.size(1), 1), 1);
}

template <class F>
void each_rows(const at::Tensor& logits, F f) {
  const int64_t rows = logits.size(0), step = rows_at_once(logits);
  for (int64_t begin = 0; begin < rows; begin += step) f(begin, std::min(step, rows - begin));
}

// Whether the target is in this rank's part, and where (0 if it is not).
struct Place {
  at::Tensor elsewhere, column;
};
Place place_of(const at::Tensor& target, const Part& part) {
  const at::Tensor elsewhere = target.lt(part.begin).logical_or(target.ge(part.end()));
  return {elsewhere, target.sub(part.begin).masked_fill(elsewhere, 0)};
}

// What each rank knows of a row: its maximum, the sum of exponentials below it, the target's logit
// (0 where it is elsewhere), and with smoothing the sum of its logits below the maximum.
at::Tensor facts_of(const at::Tensor& logits, const at::Tensor& target, const Loss& loss) {
  const auto type = sums_in(logits);
  const at::Tensor facts =
      at::empty({loss.smoothing > 0 ? 4 : 3, logits.size(0)}, logits.options().dtype(type));
  const Place at = place_of(target, loss.part);
  each_rows(logits, [&](int64_t begin, int64_t n) {
    const at::Tensor z = logits.narrow(0, begin, n).to(type);
    const at::Tensor highest = z.amax(1);
    // -inf − -inf would be NaN: such a row has no exponentials here.
    const at::Tensor below =
        highest.masked_fill(highest.eq(-std::numeric_limits<double>::infinity()), 0);
    const at::Tensor shifted = z.sub(below.unsqueeze(1));
    facts[0].narrow(0, begin, n).copy_(highest);
    if (loss.smoothing > 0) facts[3].narrow(0, begin, n).copy_(shifted.sum(1));
    facts[1].narrow(0, begin, n).copy_(at::Tensor(shifted).exp_().sum(1));
    facts[2]
        .narrow(0, begin, n)
        .copy_(z.gather(1, at.column.narrow(0, begin, n).unsqueeze(1)).squeeze(1));
  });
  facts[2].masked_fill_(at.elsewhere, 0);
  return facts;
}

struct VocabCrossEntropy : Function<VocabCrossEntropy> {
  // logits [rows, part], target [rows] → losses [rows]
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& target, Loss loss) {
    const at::Tensor mine = facts_of(logits, target, loss);
    at::Tensor all = mine.unsqueeze(0);
    if (loss.group.size() > 1) {
      all = at::empty({loss.group.size(), mine.size(0), mine.size(1)}, mine.options());
      const Span span("exposed_comm", "wait for parts of a loss");
      loss.group.all_gather_into_tensor(all, mine, loss.site).wait();
    }
    // Ranks are added in their order, so that the loss has the same bits on all of them.
    const at::Tensor highest = all.select(1, 0).amax(0);
    const at::Tensor below =
        highest.masked_fill(highest.eq(-std::numeric_limits<double>::infinity()), 0);
    const at::Tensor sum = all.select(1, 1).mul(all.select(1, 0).sub(below).exp()).sum(0);
    // Differences first: logits of 10,000 leave float32 no digits for a logarithm added to them.
    const at::Tensor log_sum = sum.log();
    at::Tensor losses = log_sum.add(highest.sub(all.select(1, 2).sum(0)));
    if (loss.smoothing > 0) {
      // Σ over the vocabulary of the losses, from each rank's sum below its own maximum.
      const auto n = split_evenly(loss.vocabulary, loss.group.size());
      at::Tensor spread = log_sum.mul(static_cast<double>(loss.vocabulary));
      for (int64_t r = 0; r < all.size(0); ++r) {
        const at::Tensor own =
            all[r][0].masked_fill(all[r][0].eq(-std::numeric_limits<double>::infinity()), 0);
        const auto length = static_cast<double>(n[static_cast<size_t>(r)].length);
        spread = spread.sub(all[r][3]).add(highest.sub(own).mul(length));
      }
      losses = losses.mul(1 - loss.smoothing)
                   .add(spread.mul(loss.smoothing / static_cast<double>(loss.vocabulary)));
    }
    const at::Tensor ignored = target.eq(loss.ignored);
    losses.masked_fill_(ignored, 0);
    losses.masked_fill_(
        ignored.logical_not().logical_and(target.lt(0).logical_or(target.ge(loss.vocabulary))),
        std::numeric_limits<double>::quiet_NaN());
    ctx->save_for_backward({logits, target, highest, log_sum});
    detail::keep(ctx, std::move(loss));
    return losses;
  }

  // softmax − target, times the row's gradient: nothing of other ranks is needed.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    check<UsageError>(!c10::GradMode::is_enabled(),
                      "vocab_parallel_cross_entropy can be differentiated once: leave out "
                      "create_graph");
    const Loss& loss = detail::kept<Loss>(ctx);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &logits = saved[0], &target = saved[1], &highest = saved[2],
                     &log_sum = saved[3];
    const Place at = place_of(target, loss.part);
    const at::Tensor ignored = target.eq(loss.ignored);
    const at::Tensor row = grads[0].to(log_sum.scalar_type()).masked_fill(ignored, 0);
    const at::Tensor of_target = row.mul(loss.smoothing - 1).masked_fill(at.elsewhere, 0);
    const at::Tensor gradient = at::empty(logits.sizes(), logits.options().requires_grad(false));
    each_rows(logits, [&](int64_t begin, int64_t n) {
      const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, n).unsqueeze(1); };
      at::Tensor g = logits.narrow(0, begin, n).to(log_sum.scalar_type()).sub(rows(highest));
      g.sub_(rows(log_sum)).exp_();
      if (loss.smoothing > 0) g.sub_(loss.smoothing / static_cast<double>(loss.vocabulary));
      g.mul_(rows(row));
      g.scatter_add_(1, rows(at.column), rows(of_target));
      // A row of NaN or infinities that is ignored has no gradient, and 0 · NaN would be one.
      g.masked_fill_(rows(ignored), 0);
      gradient.narrow(0, begin, n).copy_(g);
    });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

void refuse_targets(const at::Tensor& target, const Loss& loss) {
  const at::Tensor wrong =
      target.ne(loss.ignored).logical_and(target.lt(0).logical_or(target.ge(loss.vocabulary)));
  if (wrong.any().item<bool>())
    fail<UsageError>(
        "vocab_parallel_cross_entropy: a target of {} is outside of the vocabulary of {}, and not "
        "the ignore_index {}",
        target.masked_select(wrong)[0].item<int64_t>(), loss.vocabulary, loss.ignored);
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                        int64_t vocabulary, const TensorParallel& tp,
                                        CrossEntropyOptions options) {
  const char* const name = "vocab_parallel_cross_entropy";
  const auto fault = fault_of_split("a vocabulary", vocabulary, tp.size());
  check<UsageError>(fault.empty(), "{}: {}", name, fault);
  const Part part = split_evenly(vocabulary, tp.size())[static_cast<size_t>(tp.rank())];
  check<UsageError>(logits.dim() >= 1 && logits.size(-1) == part.length,
                    "{}: the logits have {} columns, and rank {}'s part of a vocabulary of {} over "
                    "{} ranks is {}: give each rank its own part",
                    name, logits.dim() ? logits.size(-1) : 0, tp.rank(), vocabulary, tp.size(),
                    part.length);
  check<UsageError>(logits.is_floating_point(), "{}: the logits are {}, not of a float type", name,
                    c10::toString(logits.scalar_type()));
  check<UsageError>(target.scalar_type() == at::kLong &&
                        target.sizes() == logits.sizes().slice(0, logits.dim() - 1),
                    "{}: the target is {} [{}], and must be int64 with the logits' sizes but the "
                    "last",
                    name, c10::toString(target.scalar_type()),
                    fmt::join(target.sizes().vec(), ", "));
  check<UsageError>(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                    "{}: a label smoothing of {} is outside of [0, 1]", name,
                    options.label_smoothing);
  tp.check_equal(target, "the target of a vocab_parallel_cross_entropy");
  Loss loss{tp.group(), vocabulary,      options.ignore_index, options.label_smoothing,
            part,       CallSite::here()};
  const at::Tensor rows = target.reshape({-1});
  if (!is_asynchronous(target.device())) refuse_targets(rows, loss);
  const at::Tensor losses =
      VocabCrossEntropy::apply(logits.reshape({-1, logits.size(-1)}), rows, loss);
  if (options.reduction == LossReduction::none) return losses.reshape(target.sizes());
  const at::Tensor sum = losses.sum();
  if (options.reduction == LossReduction::sum) return sum;
  return sum.div(rows.ne(options.ignore_index).sum().to(sum.scalar_type()));
}

at::Tensor vocab_parallel_argmax(const at::Tensor& logits, int64_t vocabulary,
                                 const TensorParallel& tp) {
  const Part part = split_evenly(vocabulary, tp.size())[static_cast<size_t>(tp.rank())];
  check<UsageError>(logits.dim() >= 1 && logits.size(-1) == part.length,
                    "vocab_parallel_argmax: the logits have {} columns, and rank {}'s part of a "
                    "vocabulary of {} is {}",
                    logits.dim() ? logits.size(-1) : 0, tp.rank(), vocabulary, part.length);
  const auto [highest, column] = logits.detach().reshape({-1, part.length}).max(1);
  // Ids are exact in float64, and so is every logit.
  const at::Tensor mine =
      at::stack({highest.to(at::kDouble), column.add(part.begin).to(at::kDouble)});
  at::Tensor all = mine.unsqueeze(0);
  if (tp.size() > 1) {
    all = at::empty({tp.size(), 2, mine.size(1)}, mine.options());
    Group(tp.group()).all_gather_into_tensor(all, mine).wait();
  }
  const at::Tensor speaker = all.select(1, 0).argmax(0, true);
  return all.select(1, 1)
      .gather(0, speaker)
      .squeeze(0)
      .to(at::kLong)
      .reshape(logits.sizes().slice(0, logits.dim() - 1));
}

}  // namespace trireme
