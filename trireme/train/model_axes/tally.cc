// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/tally.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/reachable.h"
#include "trireme/tensor/numbers_of.h"
#include "trireme/train/model_axes/model_group.h"

namespace trireme {
namespace {

class WholeModels final : public Tally {
 public:
  StepFacts agree(StepFacts own) override { return own; }
  int world_rank(int dp_rank) const override { return dp_rank; }
};

class DividedModels final : public Tally {
 public:
  DividedModels(const DeviceMesh& mesh, std::shared_ptr<const NormParts> names,
                ParameterLayouts layouts, bool computes_loss)
      : model_(model_group(mesh)), names_(std::move(names)), layouts_(std::move(layouts)) {
    for (const int r : mesh.ranks({"dp_replicate", "dp_shard", "cp"})) dp_ranks_.push_back(r);
    std::vector<double> own{computes_loss ? 1.0 : 0.0};
    own.insert(own.end(), dp_ranks_.begin(), dp_ranks_.end());
    const auto rows = gather(own);
    while (rows.at(static_cast<size_t>(speaker_))[0] == 0) ++speaker_;
    const auto& told = rows[static_cast<size_t>(speaker_)];
    for (size_t r = 1; r < told.size(); ++r) told_by_.push_back(static_cast<int>(told[r]));
  }

  StepFacts agree(StepFacts own) override {
    const size_t ranks = own.reports.sums.size();
    std::vector<double> row;
    for (const auto* list : {&own.reports.sums, &own.reports.weights, &own.reports.stops})
      row.insert(row.end(), list->begin(), list->end());
    const bool bad = own.not_finite.rank >= 0;
    row.push_back(bad ? dp_ranks_.at(static_cast<size_t>(own.not_finite.rank)) : -1);
    row.push_back(bad ? static_cast<double>(number_of(own.not_finite.parameter)) : -1);
    const auto rows = gather(row);
    StepFacts all;
    const auto& told = rows[static_cast<size_t>(speaker_)];
    const auto part = [&](size_t i) {
      const auto begin = told.begin() + static_cast<long>(i * ranks);
      return std::vector<double>(begin, begin + static_cast<long>(ranks));
    };
    all.reports = {part(0), part(1), part(2)};
    for (const auto& one : rows) {
      for (size_t r = 0; r < ranks; ++r)
        all.reports.stops[r] = std::max(all.reports.stops[r], one[2 * ranks + r]);
      const int rank = static_cast<int>(one[3 * ranks]);
      if (rank < 0 || (all.not_finite.rank >= 0 && all.not_finite.rank <= rank)) continue;
      all.not_finite = {rank, names_->name(static_cast<size_t>(one[3 * ranks + 1]))};
    }
    return all;
  }
  int world_rank(int dp_rank) const override { return told_by_.at(static_cast<size_t>(dp_rank)); }

 private:
  size_t number_of(const std::string& parameter) const {
    const std::string& whole = whole_name(layouts_, parameter);
    for (size_t i = 0; i < names_->parameters(); ++i)
      if (names_->name(i) == whole) return i;
    return 0;
  }

  // The same number of values from each rank of the model.
  std::vector<std::vector<double>> gather(const std::vector<double>& own) {
    const auto n = static_cast<int64_t>(own.size());
    const auto options =
        at::TensorOptions(at::kDouble)
            .device(detail::reachable_device(model_, Collective::all_gather, at::kDouble));
    const at::Tensor in = at::tensor(own, options);
    at::Tensor out = at::empty({n * model_.size()}, options);
    model_.all_gather_into_tensor(out, in).wait();
    const std::vector<double> all = numbers_of<double>(out);
    const double* p = all.data();
    std::vector<std::vector<double>> rows;
    for (int r = 0; r < model_.size(); ++r) rows.emplace_back(p + r * n, p + (r + 1) * n);
    return rows;
  }

  Group model_;
  int speaker_ = 0;
  std::shared_ptr<const NormParts> names_;
  const ParameterLayouts layouts_;
  std::vector<int> told_by_, dp_ranks_;  // as ranks of the world: of the speakers, and of our own
};

}  // namespace

std::unique_ptr<Tally> make_tally(const DeviceMesh& mesh, std::shared_ptr<const NormParts> names,
                                  const ParameterLayouts& layouts, bool computes_loss) {
  if (!is_divided(mesh)) return std::make_unique<WholeModels>();
  return std::make_unique<DividedModels>(mesh, std::move(names), layouts, computes_loss);
}

}  // namespace trireme
