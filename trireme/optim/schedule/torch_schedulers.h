// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/optim/param_groups.h"
#include "trireme/optim/schedule/torch_schedule_forms.h"
#include "trireme/tensor/state.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

// Learning-rate schedules for your own loop: those of torch.optim.lr_scheduler, with its names,
// arguments, defaults and results.
//
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   trireme::lr_scheduler::StepLR schedule(optimizer, /*step_size=*/30);
//   …                                     // forward, backward
//   optimizer.step();
//   schedule.step();                      // once an epoch, or once a step: as torch's
//
// With one of our optimizers, whose step() takes the rate:
//
//   trireme::lr_scheduler::StepLR schedule(0.1, 30);
//   optimizer->step(schedule.lr());
//   schedule.step();
//
// As in torch, the constructor sets the rate for the first step, and most schedules multiply the
// current rate, so other code may change it in between. Chained schedules share a ParamGroups:
//
//   ParamGroups groups(optimizer);
//   auto warmup = std::make_shared<LinearLR>(groups, 0.1, 1.0, 5);
//   auto decay = std::make_shared<ExponentialLR>(groups, 0.9);
//   SequentialLR schedule({warmup, decay}, {5});
//
// State: torch::save(schedule, file) and torch::load(schedule, file), or state(visitor) for a
// checkpoint. The state consists of the schedule's position, the initial rates and the last ones,
// which load() writes to the groups; constructor arguments are not saved, so construct the schedule
// with the same ones before loading (torch's last_epoch argument has no other use). Every rank
// steps its own schedule and gets the same rates. One thread at a time. UsageError for arguments
// that torch refuses.
namespace trireme::lr_scheduler {

class TRIREME_API Scheduler {
 public:
  virtual ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  /// Advances by one step and sets the groups' rates.
  virtual void step();
  /// The rates that the last step() set, by group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  double lr(size_t group = 0) const { return last_lr_.at(group); }
  /// The number of steps taken, under torch's name.
  int64_t last_epoch() const { return last_epoch_; }
  const ParamGroups& groups() const { return groups_; }

  /// Visits the values "lr_scheduler.<…>".
  void state(StateVisitor& visitor);

 protected:
  Scheduler(const char* type, ParamGroups groups);
  /// The rates at last_epoch_, given the groups' current ones. Also sets momentum if that is
  /// cycled.
  virtual std::vector<double> next_rates() = 0;
  /// The rates at its own step 0, with which SequentialLR begins it.
  virtual std::vector<double> first_rates();
  virtual void visit(StateVisitor& visitor, const std::string& prefix);
  /// After loading: restores what is not in the state but follows from it.
  virtual void loaded() {}
  std::vector<double> now() const;  // the groups' current rates
  std::vector<double> scaled(double factor) const;
  /// The first step: to be called at the end of each constructor.
  void begin();
  void set(const std::vector<double>& rates);

  ParamGroups groups_;
  std::string type_;
  int64_t last_epoch_ = -1;
  std::vector<double> base_lrs_, last_lr_;

 private:
  friend class ScheduleChain;
  friend class SequentialLR;
  friend class ChainedScheduler;
  void restart();  // at step 0, by first_rates()
  virtual bool is_chain() const { return false; }
};

TRIREME_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                        const Scheduler& schedule);
TRIREME_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                       Scheduler& schedule);

/// A schedule that derives each group's rate from that group alone: the classes below differ only
/// in their constructors.
class TRIREME_API GroupSchedule : public Scheduler {
 protected:
  struct Group {
    size_t index = 0;
    double lr = 0, base_lr = 0;  // the rate now, and the initial one
  };
  using Rate = std::function<double(int64_t step, const Group& group)>;
  /// `next`: the rate at a step, given that of the step before. `first`: the rate with which
  /// SequentialLR begins the schedule; empty: next() at step 0.
  GroupSchedule(const char* type, ParamGroups groups, Rate next, Rate first = {});
  std::vector<double> next_rates() override;
  std::vector<double> first_rates() override;

 private:
  std::vector<double> each(const Rate& rate) const;
  Rate next_, first_;
};

/// The initial rate times factor(step); one function for all groups, or one for each.
class TRIREME_API LambdaLR : public GroupSchedule {
 public:
  using Factor = std::function<double(int64_t step)>;
  LambdaLR(ParamGroups groups, Factor factor);
  LambdaLR(ParamGroups groups, std::vector<Factor> factors);
};

/// The rate times factor(step), from step 1 on.
class TRIREME_API MultiplicativeLR : public GroupSchedule {
 public:
  using Factor = LambdaLR::Factor;
  MultiplicativeLR(ParamGroups groups, Factor factor);
  MultiplicativeLR(ParamGroups groups, std::vector<Factor> factors);
};

class TRIREME_API StepLR : public GroupSchedule {
 public:
  StepLR(ParamGroups groups, int64_t step_size, double gamma = 0.1);
};

/// A milestone given twice counts twice.
class TRIREME_API MultiStepLR : public GroupSchedule {
 public:
  MultiStepLR(ParamGroups groups, std::vector<int64_t> milestones, double gamma = 0.1);
};

class TRIREME_API ConstantLR : public GroupSchedule {
 public:
  ConstantLR(ParamGroups groups, double factor = 1.0 / 3, int64_t total_iters = 5);
};

class TRIREME_API LinearLR : public GroupSchedule {
 public:
  LinearLR(ParamGroups groups, double start_factor = 1.0 / 3, double end_factor = 1.0,
           int64_t total_iters = 5);
};

class TRIREME_API ExponentialLR : public GroupSchedule {
 public:
  ExponentialLR(ParamGroups groups, double gamma);
};

class TRIREME_API PolynomialLR : public GroupSchedule {
 public:
  PolynomialLR(ParamGroups groups, int64_t total_iters = 5, double power = 1.0);
};

/// Beyond T_max the cosine rises again, as in torch.
class TRIREME_API CosineAnnealingLR : public GroupSchedule {
 public:
  CosineAnnealingLR(ParamGroups groups, int64_t T_max, double eta_min = 0);
};

class TRIREME_API CosineAnnealingWarmRestarts : public GroupSchedule {
 public:
  CosineAnnealingWarmRestarts(ParamGroups groups, int64_t T_0, int64_t T_mult = 1,
                              double eta_min = 0);
};

struct OneCycleLROptions {
  std::vector<double> max_lr = {};  // one, or one for each group; required
  int64_t total_steps = 0;          // 0: epochs × steps_per_epoch
  int64_t epochs = 0;
  int64_t steps_per_epoch = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  // or "linear"
  /// Momentum moves opposite to the rate (Adam: beta1). UsageError if the groups have none.
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.85};
  std::vector<double> max_momentum = {0.95};
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
};

/// torch's OneCycleLR; for DeepSpeed's OneCycle, see ScheduleOptions. Its groups start at max_lr /
/// div_factor, whatever their rates were. UsageError for a step beyond total_steps.
class TRIREME_API OneCycleLR : public Scheduler {
 public:
  OneCycleLR(ParamGroups groups, const OneCycleLROptions& options);

 protected:
  std::vector<double> next_rates() override;
  void loaded() override;
  std::vector<OneCycleForm> rates_, momentums_;
};

struct CyclicLROptions {
  std::vector<double> base_lr = {};  // one, or one for each group; required
  std::vector<double> max_lr = {};   // likewise
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;       // 0: as up
  std::string mode = "triangular";  // "triangular2", "exp_range"
  double gamma = 1;
  /// Used instead of `mode`: a function of the cycle's number (from 1) or, with scale_mode
  /// "iterations", of the step.
  std::function<double(double)> scale_fn = {};
  std::string scale_mode = "cycle";
  /// As in OneCycleLROptions; also cycles beta1, as torch 2 does.
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.8};
  std::vector<double> max_momentum = {0.9};
};

class TRIREME_API CyclicLR : public Scheduler {
 public:
  CyclicLR(ParamGroups groups, const CyclicLROptions& options);

 protected:
  std::vector<double> next_rates() override;
  void loaded() override;
  double scale() const;
  CyclicForm form_;
  std::function<double(double)> scale_fn_;
  bool by_cycle_ = true;
  bool cycle_momentum_ = true;
  std::vector<double> max_lrs_, base_momentums_, max_momentums_;
};

/// A schedule made of schedules, which were all made from one ParamGroups.
class TRIREME_API ScheduleChain : public Scheduler {
 protected:
  ScheduleChain(const char* type, std::vector<std::shared_ptr<Scheduler>> schedulers);
  std::vector<double> next_rates() override;
  void visit(StateVisitor& visitor, const std::string& prefix) override;
  std::vector<std::shared_ptr<Scheduler>> schedulers_;

 private:
  bool is_chain() const override { return true; }
};

/// One schedule after the other: number i until milestones[i], each counting its own steps from 0.
/// Chains cannot be among them, as in torch.
class TRIREME_API SequentialLR : public ScheduleChain {
 public:
  /// The schedules must have been made in this order, from one ParamGroups.
  SequentialLR(std::vector<std::shared_ptr<Scheduler>> schedulers, std::vector<int64_t> milestones);
  void step() override;

 protected:
  void loaded() override;

 private:
  size_t active() const;
  std::vector<int64_t> milestones_;
};

/// Steps all of its schedules at each step, in this order: their factors multiply.
class TRIREME_API ChainedScheduler : public ScheduleChain {
 public:
  explicit ChainedScheduler(std::vector<std::shared_ptr<Scheduler>> schedulers);
  void step() override;

 protected:
  void loaded() override;
};

}  // namespace trireme::lr_scheduler
