// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "trireme/optim/norm_kernels.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

// A parameter as a matrix [size(0), the rest]; a vector is one row, whose column sums are its whole
// second moment.
struct Matrix {
  int64_t rows, columns;
  int64_t row_at, column_at;                               // of its state in the two flat buffers
  int64_t blocks() const { return norm_blocks(columns); }  // of one row
};

// Three phases: row and column sums of all parameters, norms of all parameters, updates. Whoever
// splits parameters over ranks adds sums between them. Sums are taken in an order that depends on
// shapes alone.
class Adafactor final : public Optimizer {
 public:
  Adafactor(NamedTensors parameters, const AdafactorOptions& options,
            const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups), options_(options), taken_(table_.size(), 0) {
    int64_t rows = 0, columns = 0;
    for (const auto& entry : table_.entries()) {
      int64_t first = entry.shape.size() > 1 ? entry.shape[0] : 1;
      if (first == 0 || entry.numel / first <= 1) first = 1;  // nothing is saved on one column
      matrices_.push_back({first, entry.numel / first, rows, columns});
      if (first > 1) rows += first;
      columns += entry.numel / first;
    }
    const at::Tensor& like = parameters_.front().second;
    row_ = like.detach().new_zeros({rows});
    column_ = like.detach().new_zeros({columns});
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<NormPair> squares;
    for (const auto& s : all) {
      const double age = static_cast<double>(++taken_[s.index]);
      const AdafactorScalars scalars = scalars_of(s, lr, grad_scale, age);
      if (!s.parameter.is_cpu())
        adafactor_pass(s.parameter.view(sizes(s)), s.gradient.view(sizes(s)), rows_of(s),
                       columns_of(s), scalars);
      else
        with_type(s, [&](auto type) { second_moments<decltype(type)>(s, scalars); });
    }
    for (const auto& s : all) {
      squares.push_back({});
      if (s.parameter.is_cpu())
        with_type(s, [&](auto type) { squares.back() = measure<decltype(type)>(s, grad_scale); });
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& s = all[i];
      if (!s.parameter.is_cpu()) continue;
      const auto scalars = scalars_of(s, lr, grad_scale, static_cast<double>(taken_[s.index]));
      const double n = static_cast<double>(std::max<int64_t>(1, s.numel));
      const double step =
          scalars.step(std::sqrt(squares[i].first / n), std::sqrt(squares[i].second / n));
      with_type(s, [&](auto type) { update<decltype(type)>(s, scalars, step); });
      bump_version(s.parameter);
    }
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit_steps(visitor, taken_);
    for (size_t i = 0; i < table_.size(); ++i) {
      const auto& entry = table_[i];
      const Matrix& m = matrices_[i];
      const at::Tensor columns = column_.narrow(0, m.column_at, m.columns);
      if (m.rows > 1) {
        visitor.tensor("optim.exp_avg_sq_row." + entry.name, row_.narrow(0, m.row_at, m.rows));
        visitor.tensor("optim.exp_avg_sq_col." + entry.name, columns);
      } else {
        visitor.tensor("optim.exp_avg_sq." + entry.name, columns.view(entry.shape));
      }
    }
  }

 private:
  template <class F>
  static void with_type(const Segment& s, const F& f) {
    s.parameter.scalar_type() == at::kFloat ? f(float()) : f(double());
  }

  AdafactorScalars scalars_of(const Segment& s, double lr, double grad_scale, double age) const {
    AdafactorScalars scalars;
    scalars.grad_scale = grad_scale;
    scalars.lr = lr * multiplier_of(s.index);
    scalars.keep = 1 - scalars.lr * decay_of(s.index, options_.weight_decay);
    scalars.beta2 = 1 - std::pow(age, options_.beta2_decay);
    scalars.eps1 = options_.eps1;
    scalars.eps2 = options_.eps2;
    scalars.clip = options_.d;
    scalars.scale_parameter = options_.scale_parameter;
    return scalars;
  }

  std::vector<int64_t> sizes(const Segment& s) const {
    return {matrices_[s.index].rows, matrices_[s.index].columns};
  }
  at::Tensor rows_of(const Segment& s) const {
    const Matrix& m = matrices_[s.index];
    return m.rows > 1 ? row_.narrow(0, m.row_at, m.rows) : at::Tensor();
  }
  at::Tensor columns_of(const Segment& s) const {
    return column_.narrow(0, matrices_[s.index].column_at, matrices_[s.index].columns);
  }

  // f(unit, element, count): the blocks of each row, of which there is one line.
  template <class F>
  static void for_units(const Matrix& m, const F& f) {
    at::parallel_for(0, m.rows * m.blocks(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t column = unit % m.blocks() * kNormBlock;
        f(unit, unit / m.blocks(), column, std::min(kNormBlock, m.columns - column));
      }
    });
  }

  template <class T>
  void second_moments(const Segment& s, const AdafactorScalars& scalars) {
    const Matrix& m = matrices_[s.index];
    const T* g = s.gradients<T>();
    const double square = scalars.grad_scale * scalars.grad_scale;
    const auto decay = [&](T& moment, double sum, int64_t count) {
      moment = static_cast<T>(scalars.beta2 * static_cast<double>(moment) +
                              (1 - scalars.beta2) *
                                  (sum * square / static_cast<double>(count) + scalars.eps1));
    };
    if (m.rows > 1) {
      T* row = host_data<T>(row_) + m.row_at;
      std::vector<double> sums(static_cast<size_t>(m.rows * m.blocks()));
      for_units(m, [&](int64_t unit, int64_t r, int64_t column, int64_t count) {
        block_square_sums(g + r * m.columns + column, count, &sums[static_cast<size_t>(unit)]);
      });
      for (int64_t r = 0; r < m.rows; ++r)
        decay(row[r], tree_sum(sums.data() + r * m.blocks(), m.blocks()), m.columns);
    }
    T* column = host_data<T>(column_) + m.column_at;
    at::parallel_for(0, m.columns, std::max<int64_t>(64, 65536 / m.rows),
                     [&](int64_t begin, int64_t end) {
                       std::vector<double> sums(static_cast<size_t>(end - begin), 0.0);
                       for (int64_t r = 0; r < m.rows; ++r)
                         for (int64_t c = begin; c < end; ++c) {
                           const double x = static_cast<double>(g[r * m.columns + c]);
                           sums[static_cast<size_t>(c - begin)] += x * x;
                         }
                       for (int64_t c = begin; c < end; ++c)
                         decay(column[c], sums[static_cast<size_t>(c - begin)], m.rows);
                     });
  }

  // 1/sqrt(second moment) = row factor × column factor; the row's has the gradient's scale in it.
  template <class T>
  struct Factors {
    std::vector<T> row, column;
  };

  template <class T>
  Factors<T> factors(const Segment& s, double grad_scale) const {
    const Matrix& m = matrices_[s.index];
    Factors<T> f{{static_cast<T>(grad_scale)}, std::vector<T>(static_cast<size_t>(m.columns))};
    const T* column = host_data<T>(column_) + m.column_at;
    for (size_t c = 0; c < f.column.size(); ++c)
      f.column[c] = static_cast<T>(1 / std::sqrt(static_cast<double>(column[c])));
    if (m.rows == 1) return f;
    const T* row = host_data<T>(row_) + m.row_at;
    double mean = 0;
    for (int64_t r = 0; r < m.rows; ++r) mean += static_cast<double>(row[r]);
    mean /= static_cast<double>(m.rows);
    f.row.resize(static_cast<size_t>(m.rows));
    for (size_t r = 0; r < f.row.size(); ++r)
      f.row[r] = static_cast<T>(grad_scale * std::sqrt(mean / static_cast<double>(row[r])));
    return f;
  }

  using NormPair = std::pair<double, double>;  // of a parameter, and of its update

  template <class T>
  NormPair measure(const Segment& s, double grad_scale) const {
    const Matrix& m = matrices_[s.index];
    const Factors<T> f = factors<T>(s, grad_scale);
    const int64_t units = m.rows * m.blocks();
    std::vector<double> p_sums(static_cast<size_t>(units)), u_sums(p_sums);
    for_units(m, [&](int64_t unit, int64_t r, int64_t column, int64_t count) {
      const T* g = s.gradients<T>() + r * m.columns + column;
      const T row = f.row[static_cast<size_t>(r)];
      const T* factor = f.column.data() + column;
      T u[kNormBlock];
      for (int64_t c = 0; c < count; ++c) u[c] = g[c] * row * factor[c];
      block_square_sums(u, count, &u_sums[static_cast<size_t>(unit)]);
      block_square_sums(s.parameters<T>() + r * m.columns + column, count,
                        &p_sums[static_cast<size_t>(unit)]);
    });
    return {tree_sum(p_sums.data(), units), tree_sum(u_sums.data(), units)};
  }

  template <class T>
  void update(const Segment& s, const AdafactorScalars& scalars, double step) {
    const Matrix& m = matrices_[s.index];
    const Factors<T> f = factors<T>(s, scalars.grad_scale);
    const T keep = static_cast<T>(scalars.keep), rate = static_cast<T>(step);
    for_units(m, [&](int64_t, int64_t r, int64_t column, int64_t count) {
      T* p = s.parameters<T>() + r * m.columns + column;
      const T* g = s.gradients<T>() + r * m.columns + column;
      const T row = f.row[static_cast<size_t>(r)];
      const T* factor = f.column.data() + column;
      for (int64_t c = 0; c < count; ++c) p[c] = p[c] * keep - rate * (g[c] * row * factor[c]);
    });
  }

  AdafactorOptions options_;
  std::vector<Matrix> matrices_;
  at::Tensor row_, column_;
  std::vector<int64_t> taken_;  // steps of each parameter: beta2 depends on them
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(NamedTensors parameters, const AdafactorOptions& options,
                                          const std::vector<OptionGroup>& groups) {
  check<UsageError>(options.beta2_decay < 0 && std::isfinite(options.beta2_decay),
                    "Adafactor: beta2_decay is {}: it must be below 0", options.beta2_decay);
  check<UsageError>(options.eps1 > 0 && std::isfinite(options.eps1),
                    "Adafactor: eps1 is {}: it must be above 0, or a zero gradient divides by zero",
                    options.eps1);
  check_not_negative("Adafactor", "eps2", options.eps2);
  check_not_negative("Adafactor", "weight_decay", options.weight_decay);
  check<UsageError>(options.d > 0, "Adafactor: d is {}: it must be above 0", options.d);
  return std::make_unique<Adafactor>(std::move(parameters), options, groups);
}

}  // namespace trireme
