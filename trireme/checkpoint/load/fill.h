// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/checkpoint/load/compare.h"

namespace trireme {

/// The second walk of a load: everything fits, now it is written. ResourceError when the disk
/// fails.
class Filler : public StateVisitor {
 public:
  Filler(const OpenedStep& opened, const LoadPlan& plan)
      : opened_(opened), values_(opened.index().values), plan_(plan) {}

  void tensor(const Slice& slice, at::Tensor local) override;
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override;
  void value(const std::string& name, int64_t& v) override { fill(name, v); }
  void value(const std::string& name, double& v) override { fill(name, v); }
  void value(const std::string& name, std::string& v) override { fill(name, v); }
  void constant(const std::string&, const std::string&) override {}  // it was compared
  Purpose purpose() const override { return Purpose::load; }

 private:
  template <class T>
  void fill(const std::string& name, T& v) const {
    if (const auto it = plan_.values.find(name); it != plan_.values.end())
      v = std::get<T>(values_.at(it->second));
  }
  const TensorSource& next(const std::string& name, const at::Tensor& local);
  void fill(const IndexTensor& saved, const std::vector<Copy>& copies, at::Tensor local) const;
  void copy(const IndexTensor& saved, const std::vector<Copy>& copies, at::Tensor& to) const;
  void convert(const IndexTensor& saved, const std::vector<Copy>& copies, at::Tensor& to) const;

  const OpenedStep& opened_;
  const std::map<std::string, IndexValue>& values_;
  const LoadPlan& plan_;
  size_t next_ = 0;
};

}  // namespace trireme
