// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_optimizer.h"

#include <malloc.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/shard/offload/dedup_state_visitor.h"
#include "trireme/shard/offload/offload_plan.h"
#include "trireme/shard/offload/offload_storages.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

constexpr int64_t kFileAlignment = OffloadFile::kAlignment;

void check_options(const OffloadOptions& o, const NamedTensors& parameters,
                   const MakeOptimizer& make) {
  check<UsageError>(static_cast<bool>(make),
                    "offload: no way to make the inner optimizer is given");
  check<UsageError>(!parameters.empty(),
                    "optimizer: no parameters: does the model have any that require a gradient?");
  check<UsageError>(o.sub_group_bytes > 0, "offload: sub_group_bytes is {}: it must be above zero",
                    o.sub_group_bytes);
  check<UsageError>(o.buffer_count >= 1, "offload: buffer_count is {}: it must be 1 or more",
                    o.buffer_count);
}

std::unique_ptr<Optimizer> made(const MakeOptimizer& make, NamedTensors parameters) {
  auto optimizer = make(std::move(parameters));
  check<UsageError>(optimizer != nullptr, "offload: no optimizer was made");
  return optimizer;
}

/// glibc keeps what is freed, and an aligned block does not fit again where one of its size was:
/// without this every sub-group that is made and dropped stays resident (measured: each added its
/// own bytes).
class FreedMemory {
 public:
  void add(int64_t bytes) {
    if ((bytes_ += bytes) < kEnough) return;
    bytes_ = 0;
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
  }

 private:
  static constexpr int64_t kEnough = 1 << 20;  // a pass over the heap each time
  int64_t bytes_ = 0;
};

}  // namespace

struct OffloadedOptimizer::Impl {
  struct Group {
    std::string first, last;  // parameters
    size_t begin = 0, count = 0;
    std::unique_ptr<Optimizer> inner;
    detail::OffloadStorages state;
    std::vector<int64_t> offsets;  // of the storages, in a buffer
    uint64_t place = 0;            // in the file
    size_t bytes = 0;              // there, with padding; 0: no state
    int64_t state_bytes = 0;
    bool changed = false, resident = false, mapped = false;
    OffloadFile::Request reading, writing;
  };

  /// With a sub-group and where its bytes are now; true: they have changed.
  using Body = std::function<bool(Group&, const void* memory)>;

  Impl(const NamedTensors& all, const MakeOptimizer& make, const OffloadOptions& options);
  /// Every sub-group has its turn; `steps`: with its parameters.
  void pass(bool steps, const Body& body);
  void turn(bool steps, const OffloadTurn& t, const Body& body);
  void use(Group& group, void* buffer, const Body& body);
  void written(Group& group);
  [[noreturn]] void give_up(const char* doing, const Group& group);

  OffloadOptions options;
  std::vector<Group> groups;
  std::vector<std::shared_ptr<void>> buffers;
  size_t buffer_bytes = 0;  // each
  std::unique_ptr<OffloadFile> file;
  std::string failed;
};

OffloadedOptimizer::Impl::Impl(const NamedTensors& all, const MakeOptimizer& make,
                               const OffloadOptions& o)
    : options(o) {
  TiedNames tied;
  const NamedTensors parameters = unique_tensors(all, &tied);
  check_options(options, parameters, make);
  std::vector<int64_t> state_bytes, padded;  // by parameter; padded: at most
  ParameterPager* const pager = options.parameters.get();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (pager) pager->hold(i, 1);
    if (pager && i > 0) pager->release(i - 1, 1, false);  // neighbours are often brought together
    const auto probe = made(make, {parameters[i]});
    state_bytes.push_back(0);
    padded.push_back(0);
    for (int64_t b : detail::OffloadStorages(*probe, parameters).bytes()) {
      state_bytes.back() += b;
      padded.back() += round_up(b, kFileAlignment);
    }
  }
  if (pager) pager->release(parameters.size() - 1, 1, false);
  const auto plan = plan_sub_groups(state_bytes, options.sub_group_bytes);
  int64_t total = 0, largest = 0;
  for (const auto& sub : plan) {
    int64_t room = 0;
    for (size_t i = sub.first; i < sub.first + sub.count; ++i) room += padded[i];
    total += room;
    largest = std::max(largest, room);
  }
  if (total > 0) {
    file = std::make_unique<OffloadFile>(options.file, static_cast<uint64_t>(total));
    buffer_bytes = static_cast<size_t>(largest);
    for (int i = 0; i < std::min(options.buffer_count, static_cast<int>(plan.size())); ++i)
      buffers.push_back(offload_memory(buffer_bytes));
  }
  uint64_t place = 0;
  FreedMemory freed;
  groups.resize(plan.size());
  for (size_t g = 0; g < plan.size(); ++g) {
    Group& group = groups[g];
    const auto first = parameters.begin() + static_cast<ptrdiff_t>(plan[g].first);
    const NamedTensors own(first, first + static_cast<ptrdiff_t>(plan[g].count));
    group.first = own.front().first;
    group.last = own.back().first;
    group.begin = plan[g].first;
    group.count = plan[g].count;
    NamedTensors named = own;  // under all names, which patterns of options may match
    for (const TiedName& t : tied)
      for (const auto& [name, p] : own)
        if (name == t.first) named.emplace_back(t.name, p);
    while_held(pager, group.begin, group.count, false, [&] { group.inner = made(make, named); });
    group.state = detail::OffloadStorages(*group.inner, parameters);
    group.offsets = plan_offsets(group.state.bytes(), kFileAlignment);
    group.place = place;
    group.bytes = static_cast<size_t>(group.offsets.back());
    for (int64_t b : group.state.bytes()) group.state_bytes += b;
    place += group.bytes;
    check<UsageError>(group.bytes <= buffer_bytes && place <= static_cast<uint64_t>(total),
                      "offload: the parameters '{}' to '{}' have more state together than one by "
                      "one: this optimizer cannot be offloaded",
                      group.first, group.last);
    if (group.bytes == 0) continue;
    const auto& buffer = buffers[g % buffers.size()];
    if (g >= buffers.size()) groups[g - buffers.size()].writing.wait();
    group.state.copy_to(buffer.get(), group.offsets);
    group.state.drop();
    freed.add(group.state_bytes);
    group.writing = file->write(group.place, buffer, group.bytes);
  }
  for (const Group& group : groups) group.writing.wait();
}

void OffloadedOptimizer::Impl::use(Group& group, void* buffer, const Body& body) {
  struct Resident {
    Group& group;
    Resident(Group& g, void* memory) : group(g) {
      group.state.place(memory, group.offsets);
      group.resident = true;
      group.mapped = false;
    }
    ~Resident() {
      group.state.drop();
      group.resident = false;
    }
  };
  if (group.bytes == 0) {
    body(group, nullptr);
    return;
  }
  Resident resident(group, buffer);
  group.changed = body(group, buffer);
}

// Somebody else holds a tensor of this state: it sees the bytes in the file.
void OffloadedOptimizer::Impl::written(Group& group) {
  if (group.bytes == 0 || !group.state.shared()) return;
  const auto view = file->map(group.place, group.bytes);
  group.state.place(view.get(), group.offsets, view);
  group.mapped = true;
}

void OffloadedOptimizer::Impl::turn(bool steps, const OffloadTurn& t, const Body& body) {
  Group& group = groups[static_cast<size_t>(t.group)];
  const bool stored = group.bytes > 0;
  const auto buffer = stored ? buffers[static_cast<size_t>(t.buffer)] : nullptr;
  switch (t.action) {
    case OffloadTurn::read:
      if (stored) group.reading = file->read(group.place, buffer, group.bytes);
      if (steps && options.parameters) options.parameters->prefetch(group.begin, group.count);
      break;
    case OffloadTurn::wait_read: {
      Span span("offload", "wait for read");
      std::exchange(group.reading, {}).wait();
      break;
    }
    case OffloadTurn::use:
      while_held(steps ? options.parameters.get() : nullptr, group.begin, group.count, true,
                 [&] { use(group, buffer.get(), body); });
      break;
    case OffloadTurn::write:
      if (stored && group.changed) group.writing = file->write(group.place, buffer, group.bytes);
      break;
    case OffloadTurn::wait_write: {
      Span span("offload", "wait for write");
      std::exchange(group.writing, {}).wait();
      written(group);
      break;
    }
  }
}

void OffloadedOptimizer::Impl::pass(bool steps, const Body& body) {
  check<UsageError>(failed.empty(), "offload: the state is lost: {}", failed);
  const auto turns = plan_turns(static_cast<int>(groups.size()),
                                std::max<int>(1, static_cast<int>(buffers.size())),
                                options.pipeline_read, options.pipeline_write);
  for (const auto& t : turns) {
    try {
      turn(steps, t, body);
    } catch (...) {
      static constexpr const char* kDoing[] = {"reading", "reading", "updating", "writing",
                                               "writing"};
      give_up(kDoing[t.action], groups[static_cast<size_t>(t.group)]);
    }
  }
}

void OffloadedOptimizer::Impl::give_up(const char* doing, const Group& group) {
  const std::string where = fmt::format(
      "{} the optimizer state of the parameters '{}' to '{}' failed halfway: make a new optimizer "
      "and load a checkpoint. ",
      doing, group.first, group.last);
  failed = where;
  // The buffers of what is under way are kept by it.
  try {
    throw;
  } catch (const Corrupt& e) {
    throw Corrupt(where + e.what());
  } catch (const Timeout& e) {
    throw Timeout(where + e.what());
  } catch (const ResourceError& e) {
    throw ResourceError(where + e.what());
  }
}

OffloadedOptimizer::OffloadedOptimizer(NamedTensors parameters, const MakeOptimizer& make,
                                       const OffloadOptions& options)
    : impl_(std::make_unique<Impl>(parameters, make, options)) {
  parameters_ = unique_tensors(parameters);
  table_ = ParameterTable(parameters_);
  groups_.push_back({});
}

OffloadedOptimizer::~OffloadedOptimizer() = default;

void OffloadedOptimizer::step(double lr, double grad_scale) {
  (void)segments();  // a gradient that is refused is refused before anything has changed
  impl_->pass(true, [&](Impl::Group& group, const void*) {
    Span span("optimizer", "sub-group");
    group.inner->step(lr, grad_scale);
    return true;
  });
  steps_ = impl_->groups.front().inner->steps();
}

void OffloadedOptimizer::state(StateVisitor& visitor) {
  detail::DedupStateVisitor once(visitor);
  std::exception_ptr thrown;  // by the visitor: sub-groups still agree with each other afterwards
  impl_->pass(false, [&](Impl::Group& group, const void* memory) {
    try {
      group.inner->state(once);
    } catch (...) {
      if (thrown) throw;
      thrown = std::current_exception();
      once.values_only();
      group.inner->state(once);
    }
    return memory && !impl_->file->holds(group.place, memory, group.bytes);
  });
  if (thrown) std::rethrow_exception(thrown);
  steps_ = impl_->groups.front().inner->steps();
}

OffloadUsage OffloadedOptimizer::usage() const {
  OffloadUsage usage;
  usage.sub_groups = static_cast<int>(impl_->groups.size());
  usage.buffer_bytes = static_cast<int64_t>(impl_->buffer_bytes * impl_->buffers.size());
  for (const auto& group : impl_->groups) {
    usage.state_bytes += group.state_bytes;
    if (group.resident) usage.resident_bytes += group.state_bytes;
    if (group.mapped) usage.mapped_bytes += group.state_bytes;
  }
  return usage;
}

const OffloadFile* OffloadedOptimizer::file() const { return impl_->file.get(); }

std::unique_ptr<OffloadedOptimizer> offload_optimizer(NamedTensors parameters,
                                                      const MakeOptimizer& make,
                                                      const OffloadOptions& options) {
  return std::make_unique<OffloadedOptimizer>(std::move(parameters), make, options);
}

}  // namespace trireme
