// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/step_plan.h"

#include "trireme/base/check.h"

namespace trireme {

StepPlan::~StepPlan() = default;

namespace {

class LeafPlan final : public StepPlan {
 public:
  LeafPlan(const GlobalBatchOptions& options, Deal deal) : plan_(options), deal_(deal) {}
  int64_t first_step_of(int64_t epoch) const override {
    return plan_.positions().first_step_of(epoch);
  }
  std::optional<DataOrigin> origin_at(int64_t step) const override {
    return plan_.positions().origin_at(step);
  }
  int64_t samples(int64_t step) const override { return plan_.samples_of(step); }
  PrefetchingLoader::MakeBatch batches(std::shared_ptr<const DataSource> source, int rank,
                                       int world) const override {
    return leaf_batches(std::move(source), plan_, rank, world, deal_);
  }

 private:
  GlobalBatch plan_;
  Deal deal_;
};

class SharePlan final : public StepPlan {
 public:
  SharePlan(const GlobalBatchOptions& options, std::shared_ptr<const ShareDeal> deal, int64_t most)
      : plan_(options), deal_(std::move(deal)), most_(most) {}
  int64_t first_step_of(int64_t epoch) const override {
    return plan_.positions().first_step_of(epoch);
  }
  std::optional<DataOrigin> origin_at(int64_t step) const override {
    return plan_.positions().origin_at(step);
  }
  int64_t samples(int64_t step) const override { return plan_.samples_of(step); }
  PrefetchingLoader::MakeBatch batches(std::shared_ptr<const DataSource> source, int rank,
                                       int /*world*/) const override {
    return share_batches(std::move(source), plan_, rank, deal_, most_);
  }

 private:
  GlobalBatch plan_;
  std::shared_ptr<const ShareDeal> deal_;
  int64_t most_;
};

class CallersPlan final : public StepPlan {
 public:
  explicit CallersPlan(int64_t samples) : samples_(samples) {}
  int64_t first_step_of(int64_t) const override { refuse(); }
  std::optional<DataOrigin> origin_at(int64_t) const override { return {}; }
  int64_t samples(int64_t) const override { return samples_; }
  PrefetchingLoader::MakeBatch batches(std::shared_ptr<const DataSource>, int, int) const override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    fail<UsageError>("this run has no data of its own: its caller brings the batches");
  }
  int64_t samples_;
};

}  // namespace

std::unique_ptr<StepPlan> leaf_plan(const GlobalBatchOptions& options, Deal deal) {
  return std::make_unique<LeafPlan>(options, deal);
}

std::unique_ptr<StepPlan> share_plan(const GlobalBatchOptions& options,
                                     std::shared_ptr<const ShareDeal> deal, int64_t most) {
  return std::make_unique<SharePlan>(options, std::move(deal), most);
}

std::unique_ptr<StepPlan> callers_plan(int64_t samples) {
  return std::make_unique<CallersPlan>(samples);
}

PrefetchingLoader::MakeBatch TokenPlan::batches(std::shared_ptr<const DataSource> source, int rank,
                                                int world) const {
  return token_step_batches(std::move(source), steps_, rank, world);
}

std::string TokenPlan::describe() const {
  const TokenBatches& all = steps_->batches();
  return fmt::format(
      "micro-batches of up to {} tokens: {} of {:.1f} documents on average, {:.0f} % padding, {} "
      "documents left out",
      steps_->max_tokens(), all.size(),
      static_cast<double>(all.sequences()) / static_cast<double>(all.size()), 100 * all.padding(),
      all.left_out());
}

}  // namespace trireme
